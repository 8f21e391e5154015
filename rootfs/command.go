package rootfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// keptOutput bounds what is kept of a program's output, in bytes: the end, where
// the reason of a failure stands.
const keptOutput = 64 << 10

// stopGrace is how long a program may take to clean up (mmdebstrap unmounts)
// after SIGTERM, before SIGKILL.
const stopGrace = 10 * time.Second

// command is one run of a program.
type command struct {
	name string
	args []string
	dir  string
	env  []string // added to the process's own
	bare bool     // only env, nothing of the process's own
}

// commandError is a program that failed, with the end of what it said.
type commandError struct {
	name   string
	output string
	err    error
}

func (e *commandError) Error() string {
	return fmt.Sprintf("rootfs: run %s: %v: %s", e.name, e.err, lastLines(e.output, 6))
}

func (e *commandError) Unwrap() error { return e.err }

// run runs c to its end and returns its standard output. It runs in a process
// group of its own, all of which is ended when ctx is.
func (c command) run(ctx context.Context) (string, error) {
	var stdout, all tail
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Dir = c.dir
	cmd.Env = c.env
	if !c.bare {
		cmd.Env = append(os.Environ(), c.env...)
	}
	cmd.Stdout = io.MultiWriter(&stdout, &all)
	cmd.Stderr = &all
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", fmt.Errorf("rootfs: run %s: %w", c.name, context.Cause(ctx))
	}
	if err != nil {
		return "", &commandError{name: c.name, output: all.String(), err: err}
	}
	return stdout.String(), nil
}

// outputOf returns what the failed program behind err said, or "".
func outputOf(err error) string {
	var failed *commandError
	if errors.As(err, &failed) {
		return failed.output
	}
	return ""
}

// tail keeps the last keptOutput bytes written to it. A program's two output
// streams are copied by two goroutines.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if len(p) > keptOutput {
		p = p[len(p)-keptOutput:]
	}
	if over := t.buf.Len() + len(p) - keptOutput; over > 0 {
		t.buf.Next(over)
	}
	t.buf.Write(p)
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "; ")
}

// tools are the programs a build needs and the Debian package of each.
var tools = map[string]string{
	"mkfs.ext4":  "e2fsprogs",
	"mmdebstrap": "mmdebstrap",
	"npm":        "npm",
	"pip3":       "python3-pip",
	"unshare":    "util-linux",
}

// ensureTool finds a program of tools, installing its package when it is missing.
func ensureTool(ctx context.Context, p *progress, name string) (err error) {
	if _, err := exec.LookPath(name); err == nil {
		return nil
	}
	pkg := tools[name]
	defer p.step(&err, "installing %s for %s", pkg, name)()
	apt := func(args ...string) error {
		_, err := command{name: "apt-get", args: append([]string{"-o", "DPkg::Lock::Timeout=300", "-q"}, args...),
			env: []string{"DEBIAN_FRONTEND=noninteractive"}}.run(ctx)
		return err
	}
	install := []string{"install", "-y", "--no-install-recommends", pkg}
	if err = apt(install...); err != nil && ctx.Err() == nil {
		// An empty or old package list is the usual reason.
		if err = apt("update"); err == nil {
			err = apt(install...)
		}
	}
	if err != nil {
		return fmt.Errorf("rootfs: %w: %s (remedy: install the package %s): %w", ErrTool, name, pkg, err)
	}
	return nil
}
