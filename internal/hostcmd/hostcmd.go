// Package hostcmd runs programs of the host to their end: those that build
// kernels, fill images and unpack the lab's tools.
package hostcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// errorLines is how much of a failed program's output its error shows.
const errorLines = 8

// stopGrace is how long a program may take to clean up (mmdebstrap unmounts)
// between SIGTERM and SIGKILL.
const stopGrace = 10 * time.Second

// Command is one run of a program.
type Command struct {
	Argv []string
	Dir  string
	Env  []string // beside this process's own
	// Clean hides this process's own environment, but for what programs are found
	// by and what apt may need to reach its mirrors: what a build makes must not
	// depend on the caller's variables (MAKEFLAGS of a surrounding make, KCFLAGS,
	// locale, time zone).
	Clean bool
	// Stdout gets the standard output as it comes; when it is nil, Run returns it.
	Stdout io.Writer
}

// Error is a program that failed, with the end of what it said.
type Error struct {
	Name   string
	Output string // of both streams; standard error alone when Command.Stdout is set
	Err    error  // of package exec
}

func (e *Error) Error() string {
	if e.Output == "" {
		return fmt.Sprintf("hostcmd: run %s: %v", e.Name, e.Err)
	}
	return fmt.Sprintf("hostcmd: run %s: %v:\n%s", e.Name, e.Err, LastLines(e.Output, errorLines))
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Run runs c and returns the last KeptOutput bytes of its standard output. The
// program gets a process group, all of which is ended when ctx is; it is told to
// end when this process dies. The error is ctx's cause or an *Error.
func (c Command) Run(ctx context.Context) (string, error) {
	// Pdeathsig means the thread that forked, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var stdout, all tail
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = append(environ(c.Clean), c.Env...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, &all), &all
	if c.Stdout != nil {
		cmd.Stdout = c.Stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	err := cmd.Run()
	if ctx.Err() != nil {
		if cmd.Process != nil {
			// Children that did not listen. ESRCH: there are none, as usual.
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		return "", fmt.Errorf("hostcmd: run %s: %w", c.Argv[0], context.Cause(ctx))
	}
	if err != nil {
		return stdout.String(), &Error{Name: c.Argv[0], Output: all.String(), Err: err}
	}
	return stdout.String(), nil
}

func environ(clean bool) []string {
	if !clean {
		return os.Environ()
	}
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Output returns what the failed program behind err said, or "".
func Output(err error) string {
	var failed *Error
	if errors.As(err, &failed) {
		return failed.Output
	}
	return ""
}

// ExitCode returns the code with which the program behind err ended, or -1.
func ExitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// Installed says whether there is a program of that name.
func Installed(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}

// LastLines returns at most n lines of text, the last ones.
func LastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
