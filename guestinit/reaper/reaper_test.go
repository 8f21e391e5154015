package reaper_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/reaper"
)

// start runs a shell script under the reaper.
func start(t *testing.T, r *reaper.Reaper, script string) *reaper.Proc {
	t.Helper()
	p, err := r.Start(func() (int, *reaper.Status, error) {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{
			Env: os.Environ(), Sys: &syscall.SysProcAttr{Setsid: true},
		})
		return pid, nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func running(t *testing.T) *reaper.Reaper {
	ctx, cancel := context.WithCancel(context.Background())
	r := reaper.New()
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func TestStatusReachesItsOwner(t *testing.T) {
	r := running(t)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			p := start(t, r, "exit "+string(rune('0'+i%10)))
			if got := p.Status().Wait.ExitStatus(); got != i%10 {
				t.Errorf("process %d: code %d", i, got)
			}
		})
	}
	wg.Wait()
}

func TestSignal(t *testing.T) {
	r := running(t)
	p := start(t, r, "sleep 60")
	if err := p.SignalGroup(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if s := p.Status(); s.Wait.Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v", s.Wait)
	}
	if err := p.SignalGroup(syscall.SIGTERM); !errors.Is(err, reaper.ErrGone) {
		t.Errorf("signal to the dead: %v", err)
	}
}

func TestOrphansAreCollected(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	r := running(t)
	<-start(t, r, "(sleep 0.05 &); (sleep 0.1 &)").Done()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		// No child left, neither living nor dead.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("an orphan is left")
		}
	}
}

func TestEndedBeforeRegistration(t *testing.T) {
	r := reaper.New() // nobody runs it: the status must come from Start
	want := reaper.Status{Wait: syscall.WaitStatus(9)}
	p, err := r.Start(func() (int, *reaper.Status, error) { return 12345, &want, nil })
	if err != nil || p.Status().Wait.Signal() != syscall.SIGKILL {
		t.Errorf("%v, %v", p, err)
	}
}

func TestStartFails(t *testing.T) {
	r := reaper.New()
	boom := errors.New("boom")
	if _, err := r.Start(func() (int, *reaper.Status, error) { return 0, nil, boom }); !errors.Is(err, boom) {
		t.Errorf("error is %v", err)
	}
	r.Poll() // the lock was released
}
