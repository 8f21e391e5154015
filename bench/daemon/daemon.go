// Package daemon starts a thawd of bench's own, with its own socket and state, and
// ends it.
package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"thaw/client"
	"thaw/internal/hostinfo"
)

// Bounds of the daemon's start and end.
const (
	startTime = 10 * time.Second
	endTime   = 60 * time.Second
)

// Config says what daemon to start.
type Config struct {
	Bin    string // folder of thawd, thaw-vmm and thaw-init
	Dir    string // folder for its socket and state; they must not exist there
	Kernel string // path of the guest kernel
	Args   []string
}

// Daemon is a running thawd.
type Daemon struct {
	Client *client.Client
	cmd    *exec.Cmd
	log    lockedBuffer
	exited chan struct{}
}

// lockedBuffer is written by the process's copier and read after a failure.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer // protected by mu
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Start starts thawd and waits until it answers. Where the host lacks something that
// development mode goes without, it is started in that.
func Start(ctx context.Context, cfg Config) (*Daemon, error) {
	socket := filepath.Join(cfg.Dir, "thawd.sock")
	args := append([]string{"--socket", socket, "--state-dir", filepath.Join(cfg.Dir, "state"), "--bin", cfg.Bin, "--kernel", cfg.Kernel}, cfg.Args...)
	if len(hostinfo.Detect().Missing()) > 0 {
		args = append(args, "--dev")
	}
	d := &Daemon{cmd: exec.Command(filepath.Join(cfg.Bin, "thawd"), args...), exited: make(chan struct{})}
	d.cmd.Stderr = &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // Ctrl-C is bench's to handle
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("daemon: start thawd: %w", err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is in its log
		close(d.exited)
	}()
	var err error
	if d.Client, err = client.New("unix://" + socket); err == nil {
		err = d.await(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// PID is its process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Log is what it has written so far.
func (d *Daemon) Log() string { return d.log.String() }

// await asks until the daemon answers.
func (d *Daemon) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		_, err := d.Client.Info(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-d.exited:
			return fmt.Errorf("daemon: thawd ended: %s", d.log.String())
		case <-ctx.Done():
			return fmt.Errorf("daemon: thawd does not answer: %w: %s", err, d.log.String())
		}
	}
}

// Stop ends the daemon, which ends its machines.
func (d *Daemon) Stop() error {
	if d.Client != nil {
		d.Client.Close()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.exited:
		return nil
	case <-time.After(endTime):
		_ = d.cmd.Process.Kill()
		<-d.exited
		return fmt.Errorf("daemon: thawd did not end within %v and was killed", endTime)
	}
}
