package vmm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"thaw/internal/unixfd"
	"thaw/vmm/dirty"
	"thaw/vmm/protect"
)

// isHandler in the environment makes this program a handler of write faults, which has
// to be another process than the machine's.
const isHandler = "THAW_TEST_HANDLER"

func TestMain(m *testing.M) {
	if os.Getenv(isHandler) == "" {
		os.Exit(m.Run())
	}
	if err := protect.Serve(os.NewFile(3, "machine"), os.NewFile(4, "memory")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// handler starts a handler for this process and returns the socket to it.
func handler(t testing.TB) *os.File {
	conn, _ := handlerProcess(t)
	return conn
}

func handlerProcess(t testing.TB) (*os.File, *os.Process) {
	t.Helper()
	ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), isHandler+"=1")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs, memory}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ours.Close()
		cmd.Wait()
	})
	return ours, cmd.Process
}

// With write protection a snapshot has what the memory held in the pause, although the
// guest, devices and the balloon go on while it is copied.
func TestCopyAfterThePause(t *testing.T) {
	for _, vcpus := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d processors", vcpus), func(t *testing.T) {
			p, shell := wild(t, vcpus)
			m := restoreWild(t, p, shell, dirty.UffdSync)
			stop := deviceWrites(t, m, rand.Uint64())
			defer stop()
			for range 6 {
				was := counter(t, m)
				m.Resume()
				awaitCount(t, m, was+1500)
				m.Pause()
				then := bytes.Clone(m.mem.Host())
				saved, err := m.Save(SaveSpec{
					State: emptyMemfd(t, 8<<20), Memory: emptyMemfd(t, int64(m.mem.Size())),
					Tracker: dirty.UffdSync, WriteProtect: true, Resume: true,
				})
				if err != nil {
					t.Fatal(err)
				}
				sameImage(t, "saved", m.image, then)
				if saved.Pages < 500 || saved.Candidates < saved.Pages {
					t.Errorf("%+v", saved)
				}
				m.Pause()
			}
			// What was written while it copied is in the next one.
			_, saved := checkpoint(t, m, p, SaveSpec{Tracker: dirty.UffdSync})
			sameImage(t, "saved at last", m.image, m.mem.Host())
			if saved.Pages == 0 {
				t.Error("nothing was written meanwhile")
			}
		})
	}
}

// A handler that dies lets the machine run on, and the next save fails.
func TestHandlerDies(t *testing.T) {
	p, shell := wild(t, 1)
	conn, process := handlerProcess(t)
	shell.Handler = conn
	m := running(t, shell)
	image := p.image(t)
	image.Tracker = dirty.UffdSync
	if _, err := m.Restore(image); err != nil {
		t.Fatal(err)
	}
	m.Resume()
	awaitCount(t, m, counter(t, m)+1000)
	checkpoint(t, m, p, SaveSpec{Tracker: dirty.UffdSync, Resume: true})
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitCount(t, m, counter(t, m)+5000)
	for _, after := range []bool{true, false} {
		spec := SaveSpec{
			State: emptyMemfd(t, 8<<20), Memory: emptyMemfd(t, int64(m.mem.Size())), Tracker: dirty.UffdSync, WriteProtect: after, Resume: true,
		}
		if _, err := m.Save(spec); err == nil || after && !errors.Is(err, dirty.ErrTracker) {
			t.Errorf("got %v, want %v", err, dirty.ErrTracker)
		}
	}
	awaitCount(t, m, counter(t, m)+1000)
}

func TestCopyAfterThePauseIsRefused(t *testing.T) {
	p, shell := wild(t, 1)
	m := restoreWild(t, p, shell, dirty.Pagemap)
	for _, spec := range []SaveSpec{{}, {Tracker: dirty.Pagemap}, {Tracker: dirty.Pagemap, Next: dirty.UffdSync}} {
		spec.State, spec.Memory, spec.WriteProtect = emptyMemfd(t, 8<<20), emptyMemfd(t, int64(m.mem.Size())), true
		if _, err := m.Save(spec); !errors.Is(err, dirty.ErrTracker) {
			t.Errorf("got %v, want %v", err, dirty.ErrTracker)
		}
	}
}
