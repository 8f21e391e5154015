package kernel

import (
	"bytes"
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

// How much of a failed command's output goes into the error.
const errorTail = 2 << 10

// command is one run of a program of the host.
type command struct {
	dir    string
	env    []string // beside baseEnv
	stdout io.Writer
	argv   []string
}

// baseEnv is all that commands see of the environment: what a build makes must
// not depend on the caller's variables (MAKEFLAGS of a surrounding make, KCFLAGS,
// locale, time zone).
func baseEnv() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	// what programs are found by, and what apt may need to reach its mirrors
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// run executes c and waits for it. When ctx ends the whole process group is
// killed, make's children with it; when this process dies make is told to stop,
// which it passes on.
func (c command) run(ctx context.Context) error {
	// Pdeathsig means the thread that forked, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Dir = c.dir
	cmd.Env = append(baseEnv(), c.env...)
	tail := &tailBuffer{limit: errorTail}
	cmd.Stdout = tail
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	cmd.Stderr = tail
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("kernel: run %s: %w", c.argv[0], ctx.Err())
	case tail.Len() == 0:
		return fmt.Errorf("kernel: run %s: %w", strings.Join(c.argv, " "), err)
	}
	return fmt.Errorf("kernel: run %s: %w:\n%s", strings.Join(c.argv, " "), err, tail)
}

// output runs argv and returns what it prints.
func output(ctx context.Context, argv ...string) (string, error) {
	var out bytes.Buffer
	err := command{argv: argv, stdout: &out}.run(ctx)
	return out.String(), err
}

// exitCode returns the code with which the command behind err ended, or -1.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// tailBuffer keeps the last limit bytes written to it.
type tailBuffer struct {
	limit int
	buf   []byte
	cut   bool
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tailBuffer) Len() int { return len(t.buf) }

func (t *tailBuffer) String() string {
	s := strings.TrimSpace(string(t.buf))
	if t.cut {
		return "… " + s
	}
	return s
}
