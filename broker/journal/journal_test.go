package journal

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
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
	got, err := j.Reclaim()
	if err != nil || len(got) != 1 || !got[0].Killed || got[0].Err != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := os.Stat(j.path("vm1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("record: %v", err)
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
			got, err := j.Reclaim()
			if err != nil || len(got) != 1 || got[0].Killed || got[0].Err != nil {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	if cmd.ProcessState != nil {
		t.Error("the process is gone")
	}
}

func TestReclaimWithoutAndWithABadRecord(t *testing.T) {
	j := open(t)
	for _, id := range []string{"none", "bad", "empty", "lost"} {
		if err := j.Create(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(j.path("bad"), []byte(`{"pid":`), 0o600); err != nil {
		t.Fatal(err)
	}
	// Of a daemon that was killed before it wrote, and of a host whose power failed.
	for id, content := range map[string][]byte{"empty": nil, "lost": make([]byte, recordSize)} {
		if err := os.WriteFile(j.path(id), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := j.Reclaim()
	if err != nil || len(got) != 4 || got[0].ID != "bad" || got[0].Err == nil {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, l := range got[1:] {
		if l.Err != nil || l.Killed {
			t.Errorf("%+v", l)
		}
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
		if got, err := readRecord(j.path("vm")); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	if err := j.Write("vm", Record{Cgroup: "/" + strings.Repeat("x", recordSize)}); err == nil {
		t.Error("a record that is too long was taken")
	}
	if got, err := readRecord(j.path("vm")); err != nil || got.PID != 42 {
		t.Errorf("after one that was refused: %+v, %v", got, err)
	}
}

func TestIDs(t *testing.T) {
	j := open(t)
	for _, id := range []string{"", "..", ".", "a/b", "a\x00"} {
		if err := j.Create(id); err == nil {
			t.Errorf("id %q is taken", id)
		}
		if err := j.Remove(id); err == nil {
			t.Errorf("id %q is removed", id)
		}
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"pid":42,"start_time":7,"boot_id":"b","cgroup":"/sys/fs/cgroup/thaw/x"}`))
	f.Add([]byte(`{"pid":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRecord(b); err == nil && (r.PID < 0 || r.PID == 1) {
			t.Errorf("accepted pid %d", r.PID)
		}
	})
}

func FuzzStartTime(f *testing.F) {
	f.Add([]byte("42 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 20"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = parseStartTime(b) })
}
