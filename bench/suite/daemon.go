package suite

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
	daemonStart = 10 * time.Second
	daemonEnd   = 30 * time.Second
)

// daemon is a thawd of bench's own, with its own socket and state.
type daemon struct {
	cmd    *exec.Cmd
	client *client.Client
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

// withDaemon measures with a daemon that has the python image, and ends it.
func (e *env) withDaemon(ctx context.Context, measure func(context.Context, *daemon) ([]Metric, error)) (_ []Metric, err error) {
	if _, err := e.image(ctx, "python"); err != nil {
		return nil, err
	}
	d, err := e.startDaemon(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if serr := d.stop(); err == nil {
			err = serr
		}
	}()
	return measure(ctx, d)
}

// startDaemon starts thawd and waits until it answers. Where the host lacks
// something that development mode goes without, it is started in that.
func (e *env) startDaemon(ctx context.Context) (*daemon, error) {
	socket := filepath.Join(e.dir, "thawd.sock")
	args := []string{"--socket", socket, "--state-dir", filepath.Join(e.dir, "state"), "--bin", e.cfg.Bin, "--kernel", e.kernel}
	if len(hostinfo.Detect().Missing()) > 0 {
		args = append(args, "--dev")
	}
	d := &daemon{cmd: exec.Command(filepath.Join(e.cfg.Bin, "thawd"), args...), exited: make(chan struct{})}
	d.cmd.Stderr = &d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // Ctrl-C is bench's to handle
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("suite: start thawd: %w", err)
	}
	go func() {
		_ = d.cmd.Wait() // how it ended is in its log
		close(d.exited)
	}()
	var err error
	if d.client, err = client.New("unix://" + socket); err == nil {
		err = d.await(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.stop())
	}
	return d, nil
}

// await asks until the daemon answers.
func (d *daemon) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	for {
		_, err := d.client.Info(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-d.exited:
			return fmt.Errorf("suite: thawd ended: %s", d.log.String())
		case <-ctx.Done():
			return fmt.Errorf("suite: thawd does not answer: %w: %s", err, d.log.String())
		}
	}
}

// stop ends the daemon, which ends its machines.
func (d *daemon) stop() error {
	if d.client != nil {
		d.client.Close()
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-d.exited:
		return nil
	case <-time.After(daemonEnd):
		_ = d.cmd.Process.Kill()
		<-d.exited
		return fmt.Errorf("suite: thawd did not end within %v and was killed", daemonEnd)
	}
}
