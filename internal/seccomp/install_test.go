package seccomp_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/seccomp"
)

// deedEnv names what a copy of the test program does to itself.
const deedEnv = "THAW_SECCOMP_TEST"

// deeds end the copy; what they return is printed.
var deeds = map[string]func() error{
	"this thread": func() error {
		if err := seccomp.Install(&noPriority, seccomp.ThisThread); err != nil {
			return err
		}
		if err := priority(); !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("here: %v", err)
		}
		if err := elsewhere(); err != nil {
			return fmt.Errorf("on another thread: %w", err)
		}
		return nil
	},
	"all threads": func() error {
		if err := seccomp.Install(&noPriority, seccomp.AllThreads); err != nil {
			return err
		}
		if here, there := priority(), elsewhere(); !errors.Is(here, unix.EPERM) || !errors.Is(there, unix.EPERM) {
			return fmt.Errorf("here: %v, on another thread: %v", here, there)
		}
		return nil
	},
	// A thread with a filter of its own cannot take part.
	"a thread apart": func() error {
		apart := make(chan error)
		go func() {
			runtime.LockOSThread()
			err := noNewPrivs()
			if err == nil {
				err = seccomp.Install(&noPriority, seccomp.ThisThread)
			}
			apart <- err
			select {}
		}()
		if err := <-apart; err != nil {
			return err
		}
		if err := seccomp.Install(&noPriority, seccomp.AllThreads); err == nil || !strings.Contains(err.Error(), "cannot take the filter") {
			return fmt.Errorf("installed: %w", err)
		}
		return priority()
	},
	"killed": func() error {
		p := noPriority
		p.Refused = seccomp.Kill
		if err := seccomp.Install(&p, seccomp.ThisThread); err != nil {
			return err
		}
		return priority()
	},
}

var noPriority = seccomp.Policy{
	Unlisted: seccomp.Allow, Refused: seccomp.Errno(unix.EPERM),
	Rules: []seccomp.Rule{{Number: unix.SYS_GETPRIORITY, Allow: seccomp.Never}},
}

func priority() error {
	_, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return err
}

// elsewhere asks on another thread. Preconditions: the caller is locked to its own.
func elsewhere() error {
	ch := make(chan error)
	go func() {
		runtime.LockOSThread()
		ch <- priority()
	}()
	return <-ch
}

func noNewPrivs() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

func TestMain(m *testing.M) {
	deed, ok := deeds[os.Getenv(deedEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	// A new thread has the filter of the one that makes it: from here on the
	// runtime lets another than this one make them.
	runtime.LockOSThread()
	err := noNewPrivs()
	if err == nil {
		err = deed()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// The kernel takes the filters and does what they say.
func TestInstall(t *testing.T) {
	for name := range deeds {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), deedEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if name == "killed" {
				status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if !ok || !status.Signaled() || status.Signal() != unix.SIGSYS {
					t.Errorf("it ended by %v: %s", err, out)
				}
			} else if err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestUnknownScope(t *testing.T) {
	if err := seccomp.Install(&noPriority, 2); err == nil {
		t.Error("installed")
	}
}
