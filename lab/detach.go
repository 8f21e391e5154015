package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/hostcmd"
)

// A detached lab is a background process that runs Serve on a state folder. Its
// lock says that it lives, its status file how it is, and its control socket
// carries one stream of the lab per connection: a Client works over either.

const (
	optionsFile = "options.json"
	controlFile = "control.sock"
	logFile     = "lab.log"
)

// ErrNotRunning says that no detached lab runs in the state folder.
var ErrNotRunning = errors.New("lab: no lab is running: start it with `thaw lab up`")

// Up makes sure that a detached lab runs in o.StateDir (empty: the default one)
// and returns its status once it is up. serve is the command line of the
// background process; it must call Serve with the state folder, which is
// appended. A lab that runs already is left as it is, whatever o says.
func Up(ctx context.Context, o Options, serve []string) (Status, error) {
	o, err := o.normalise()
	if err != nil {
		return Status{}, err
	}
	if o.StateDir == "" {
		o.StateDir = DefaultStateDir()
		if err := checkStateDir(o.StateDir); err != nil {
			return Status{}, err
		}
	}
	if _, _, err := makeStateDir(o.StateDir); err != nil {
		return Status{}, err
	}
	held, err := lockHeld(o.StateDir)
	if err != nil {
		return Status{}, err
	}
	var child <-chan error
	if !held {
		if child, err = spawn(o, serve); err != nil {
			return Status{}, err
		}
	}
	return awaitUp(ctx, o.StateDir, child)
}

// spawn starts the background process. The channel gets its end, if that comes
// while this process lives.
func spawn(o Options, serve []string) (<-chan error, error) {
	// The last lab's end is not to be taken for this one's.
	if err := os.Remove(filepath.Join(o.StateDir, statusFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("lab: remove old status: %w", err)
	}
	b, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("lab: encode options: %w", err)
	}
	if err := os.WriteFile(filepath.Join(o.StateDir, optionsFile), b, 0o600); err != nil {
		return nil, fmt.Errorf("lab: write options: %w", err)
	}
	log, err := os.Create(filepath.Join(o.StateDir, logFile))
	if err != nil {
		return nil, fmt.Errorf("lab: open log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(serve[0], append(serve[1:len(serve):len(serve)], o.StateDir)...)
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: the lab outlives this process and its terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("lab: start supervisor: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return ended, nil
}

// awaitUp waits until the lab is up or has failed; child is nil when another
// process started it.
func awaitUp(ctx context.Context, stateDir string, child <-chan error) (Status, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		st, err := ReadStatus(stateDir)
		if err != nil {
			return st, err
		}
		switch {
		case st.State == StateUp:
			return awaitService(ctx, st)
		case st.State == StateFailed:
			return st, errors.New(st.Error)
		case st.State == StateDown && child == nil:
			return st, ErrNotRunning
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return st, fmt.Errorf("lab: wait until it is up: %w", ctx.Err())
		case err := <-child:
			if st, _ := ReadStatus(stateDir); st.State == StateFailed {
				return st, errors.New(st.Error)
			}
			b, _ := os.ReadFile(filepath.Join(stateDir, logFile))
			return st, fmt.Errorf("lab: supervisor ended (%v): %s", err, hostcmd.LastLines(string(b), errorLines))
		}
	}
}

// awaitService waits until something in the lab listens at each forwarded
// socket, when a service was asked for.
func awaitService(ctx context.Context, st Status) (Status, error) {
	if st.Service == "" {
		return st, nil
	}
	c, err := Attach(st.StateDir)
	if err != nil {
		return st, err
	}
	for _, path := range st.Forward {
		for {
			conn, err := c.DialUnix(ctx, path)
			if err == nil {
				conn.Close()
				break
			}
			if st, err = ReadStatus(st.StateDir); err != nil {
				return st, err
			}
			if st.Service != serviceRunning {
				return st, fmt.Errorf("lab: service %s%s", st.Service, serviceTail(st.StateDir))
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return st, fmt.Errorf("lab: wait for %s in the lab: %w", path, ctx.Err())
			}
		}
	}
	return st, nil
}

// Serve is the background process of a detached lab: it starts the lab that
// Up's options describe, and keeps it until ctx ends or the lab fails for good.
// Its standard output and error are the lab's log file already.
func Serve(ctx context.Context, stateDir string, log *slog.Logger) error {
	b, err := os.ReadFile(filepath.Join(stateDir, optionsFile))
	if err != nil {
		return fmt.Errorf("lab: read options: %w", err)
	}
	var o Options
	if err := json.Unmarshal(b, &o); err != nil {
		return fmt.Errorf("lab: decode options: %w", err)
	}
	o.StateDir, o.Log, o.control = stateDir, log, true
	l, err := Start(ctx, o)
	if err != nil {
		return err
	}
	if err := l.awaitFailure(ctx); err != nil {
		return errors.Join(err, l.close())
	}
	return l.Close()
}

// awaitFailure returns nil when ctx ends, and the reason when the lab fails.
func (l *Lab) awaitFailure(ctx context.Context) error {
	for {
		l.mu.Lock()
		st, changed := l.status, l.changed
		l.mu.Unlock()
		if st.State == StateFailed {
			return errors.New(st.Error)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// Attach returns a client of the detached lab in stateDir (empty: the default
// one).
func Attach(stateDir string) (*Client, error) {
	if stateDir == "" {
		stateDir = DefaultStateDir()
	}
	held, err := lockHeld(stateDir)
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, ErrNotRunning
	}
	path := filepath.Join(stateDir, controlFile)
	return NewClient(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}), nil
}

// downGrace is how long the supervisor may take to end before it is killed; its
// QEMU dies with it.
const downGrace = 10 * time.Second

// Down ends the detached lab in stateDir (empty: the default one) and returns
// when it is gone. No lab is no error.
func Down(ctx context.Context, stateDir string) error {
	if stateDir == "" {
		stateDir = DefaultStateDir()
	}
	for sig, until := unix.SIGTERM, time.Now().Add(downGrace); ; {
		held, err := lockHeld(stateDir)
		if err != nil || !held {
			return err
		}
		if time.Now().After(until) {
			sig = unix.SIGKILL
		}
		st, err := ReadStatus(stateDir)
		if err != nil {
			return err
		}
		// The lock is held, so the status is of a living supervisor; it has a
		// pid from its first write on.
		if st.PID > 1 {
			if err := unix.Kill(st.PID, sig); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("lab: end supervisor %d: %w", st.PID, err)
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("lab: wait for its end: %w", ctx.Err())
		}
	}
}
