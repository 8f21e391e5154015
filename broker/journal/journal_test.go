package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func open(t *testing.T) *Journal {
	t.Helper()
	j, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// again is the journal as a later daemon opens it.
func again(t *testing.T, j *Journal) *Journal {
	t.Helper()
	j.Close()
	later, err := Open(j.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { later.Close() })
	return later
}

// entries lists the records on disk, and fails for one that is damaged.
func entries(t *testing.T, j *Journal) (list []entry) {
	t.Helper()
	b, err := os.ReadFile(j.records.Name())
	if err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(b, recordSize) {
		e, err := decode(page)
		if errors.Is(err, errNoRecord) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

func TestOneDaemonADirectory(t *testing.T) {
	j := open(t)
	if _, err := Open(j.dir); !errors.Is(err, ErrInUse) {
		t.Errorf("second open: %v", err)
	}
}

func TestReclaimKillsTheRecordedProcess(t *testing.T) {
	j := open(t)
	cmd := sleeper(t)
	if err := j.Create("vm1"); err != nil {
		t.Fatal(err)
	}
	r, err := Describe(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Write("vm1", r); err != nil {
		t.Fatal(err)
	}
	// A child of this test stays a zombie until it is waited for, but its pidfd is readable.
	j = again(t, j)
	got, err := j.Reclaim()
	if err != nil || len(got) != 1 || !got[0].Killed || got[0].Err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if l := entries(t, j); len(l) != 0 || j.Machines() != 0 {
		t.Errorf("left %+v, %d machines", l, j.Machines())
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
}

func TestReclaimLeavesOthersAlone(t *testing.T) {
	cmd := sleeper(t)
	good, err := Describe(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	later, otherBoot := good, good
	later.StartTime++
	otherBoot.BootID = "another"
	for name, r := range map[string]Record{"reused pid": later, "another boot": otherBoot, "gone": {PID: 1 << 22, BootID: good.BootID}, "never started": {}} {
		t.Run(name, func(t *testing.T) {
			j := open(t)
			if err := j.Create("vm"); err != nil {
				t.Fatal(err)
			}
			if err := j.Write("vm", r); err != nil {
				t.Fatal(err)
			}
			got, err := again(t, j).Reclaim()
			if err != nil || len(got) != 1 || got[0].Killed || got[0].Err != nil {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	if cmd.ProcessState != nil {
		t.Error("the process is gone")
	}
}

// page is a record of that content, with a checksum that is right.
func page(content string) []byte {
	b := append(bytes.Repeat([]byte{' '}, sumSize), content...)
	b = append(b, bytes.Repeat([]byte{' '}, recordSize-len(b))...)
	copy(b, checksum(b))
	return b
}

// Of a daemon that was killed before it wrote there is nothing. What a power failure, or
// whatever else, has left half of is told of once, and stands in nobody's way.
func TestReclaimOfWhatIsNoRecord(t *testing.T) {
	j := open(t)
	old, err := encode(entry{"old", Record{Cgroup: "/" + strings.Repeat("old/", 300)}})
	if err != nil {
		t.Fatal(err)
	}
	half, err := encode(entry{"new", Record{PID: 42, Cgroup: "/new"}})
	if err != nil {
		t.Fatal(err)
	}
	copy(half[512:], old[512:])
	bad := [][]byte{half, page(`{"pid":`), page(`{"id":"x","pid":1}`), page(`{"id":"","pid":42}`), page(`{"id":"x","cgroup":"y"}`), []byte("cut off")}
	for slot, b := range bad {
		if _, err := j.put(int64(slot), b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.put(int64(len(bad))+1, noRecord[:]); err != nil { // and a hole before it
		t.Fatal(err)
	}
	if err := j.Create("created and no more"); err != nil {
		t.Fatal(err)
	}
	j = again(t, j)
	got, err := j.Reclaim()
	if err != nil || len(got) != len(bad) {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, l := range got {
		if l.ID != "" || l.Err == nil || l.Killed {
			t.Errorf("%+v", l)
		}
	}
	if len(j.free) != len(bad)+2 || j.Machines() != 0 {
		t.Errorf("%d slots are free, %d machines", len(j.free), j.Machines())
	}
}

// The second record of a machine takes the place of the first, however long that was.
func TestRecordIsReplaced(t *testing.T) {
	j := open(t)
	if err := j.Create("vm"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Record{{Cgroup: "/" + strings.Repeat("long/", 200)}, {PID: 42, BootID: "b", Cgroup: "/c"}} {
		if err := j.Write("vm", want); err != nil {
			t.Fatal(err)
		}
		if got := entries(t, j); len(got) != 1 || got[0] != (entry{"vm", want}) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if err := j.Write("vm", Record{Cgroup: "/" + strings.Repeat("x", recordSize)}); err == nil {
		t.Error("a record that is too long was taken")
	}
	if got := entries(t, j); len(got) != 1 || got[0].PID != 42 {
		t.Errorf("after one that was refused: %+v", got)
	}
}

// A machine gets the slot of one that has ended, and nothing of its record.
func TestSlotsAreUsedAgain(t *testing.T) {
	j := open(t)
	for _, id := range []string{"a", "b"} {
		if err := j.Create(id); err != nil {
			t.Fatal(err)
		}
		if err := j.Write(id, Record{PID: 40, Cgroup: "/" + id}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Create("a"); err == nil {
		t.Error("the same machine twice")
	}
	for range 100 {
		if err := j.Remove("a"); err != nil {
			t.Fatal(err)
		}
		if err := j.Write("a", Record{}); err == nil {
			t.Error("wrote of a machine that is gone")
		}
		if err := j.Create("a"); err != nil {
			t.Fatal(err)
		}
		if got := entries(t, j); len(got) != 1 || got[0].ID != "b" {
			t.Fatalf("before a machine's first record: %+v", got)
		}
		if err := j.Write("a", Record{PID: 41, Cgroup: "/again"}); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := j.records.Stat(); err != nil || info.Size() != 2*recordSize {
		t.Errorf("%d bytes for two machines, %v", info.Size(), err)
	}
	if got := entries(t, j); len(got) != 2 || got[0].Cgroup != "/again" || got[1].Cgroup != "/b" {
		t.Errorf("%+v", got)
	}
}

// On a full file system a machine that could not be written down can be forgotten: its
// slot is a hole, which zeros would need room for. One that was written is cleared.
func TestRemoveOnAFullDisk(t *testing.T) {
	j := open(t)
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := errors.Join(j.Create("written"), j.Write("written", Record{PID: 42})); err != nil {
		t.Fatal(err)
	}
	disk := j.records
	j.records = full
	if err := j.Create("never written"); err != nil {
		t.Fatal(err)
	}
	if err := j.Create("not written"); err != nil {
		t.Fatal(err)
	}
	if err := j.Write("not written", Record{PID: 43}); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("written to a full disk: %v", err)
	}
	if err := errors.Join(j.Remove("never written"), j.Remove("not written")); err != nil {
		t.Error(err)
	}
	if err := j.Remove("written"); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("cleared on a full disk: %v", err)
	}
	if len(j.free) != 2 || j.Machines() != 1 {
		t.Errorf("%d slots are free, %d machines", len(j.free), j.Machines())
	}
	j.records = disk
	if err := j.Remove("written"); err != nil || len(entries(t, j)) != 0 || len(j.free) != 3 {
		t.Errorf("%v, left %+v, %d slots are free", err, entries(t, j), len(j.free))
	}
}

// What cannot be undone stays, also while machines come and go.
func TestLeftoverStays(t *testing.T) {
	j := open(t)
	if err := j.Create("left"); err != nil {
		t.Fatal(err)
	}
	busy := t.TempDir() // no cgroup: it is not empty
	if err := os.WriteFile(filepath.Join(busy, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.Write("left", Record{Cgroup: busy}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		j = again(t, j)
		got, err := j.Reclaim()
		if err != nil || len(got) != 1 || got[0].ID != "left" || got[0].Cgroup != busy || got[0].Err == nil {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, id := range []string{"x", "y"} {
			if err := errors.Join(j.Create(id), j.Write(id, Record{PID: 42})); err != nil {
				t.Fatal(err)
			}
		}
		if j.Machines() != 3 {
			t.Errorf("%d machines", j.Machines())
		}
		if err := errors.Join(j.Remove("x"), j.Remove("y")); err != nil {
			t.Fatal(err)
		}
	}
}

// writerDir has the test binary write records there until it is killed, in place of the tests.
const writerDir = "THAW_TEST_JOURNAL"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func writeUntilKilled(dir string) error {
	j, err := Open(dir)
	if err != nil {
		return err
	}
	if err := j.Create("vm"); err != nil {
		return err
	}
	os.Stdout.WriteString("writes\n")
	for n := 2; ; n++ {
		if err := j.Write("vm", Record{PID: n, Cgroup: fmt.Sprint("/", n, strings.Repeat("/part", n%700), "/", n)}); err != nil {
			return err
		}
	}
}

// A daemon that is killed while it writes leaves one record, whole.
func TestKilledWhileItWrites(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerDir+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("writes\n"))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait() // killed
		j, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		got := entries(t, j)
		j.Close()
		if len(got) > 1 {
			t.Fatalf("%+v", got)
		}
		for _, e := range got {
			if n := fmt.Sprint("/", e.PID); e.ID != "vm" || !strings.HasPrefix(e.Cgroup, n+"/") || !strings.HasSuffix(e.Cgroup, n) {
				t.Errorf("%+v", e)
			}
		}
	}
}

func TestIDs(t *testing.T) {
	j := open(t)
	for _, id := range []string{"", "..", ".", "a/b", "a\x00"} {
		if err := j.Create(id); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
}
