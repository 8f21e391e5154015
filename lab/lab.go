package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// maxRestarts is how often a lab that died is started again: once. Emulated
	// kernels die seldom; one that dies twice has a reason.
	maxRestarts = 1
	// A lab that does not answer for probeTimeout is taken for dead. On a busy
	// host it can stand still for many seconds.
	probeEvery   = 15 * time.Second
	probeTimeout = 2 * time.Minute
)

var errKernelDied = errors.New("lab: kernel died")

// ErrClosed says that the lab was closed.
var ErrClosed = errors.New("lab: closed")

// Lab is a running lab and its supervisor. Its Client's commands wait while the
// lab is being started again.
type Lab struct {
	*Client
	opts      Options
	tools     *Tools
	lock      *os.File
	removeDir func() error
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	mu      sync.Mutex
	status  Status        // protected by mu
	current *machine      // protected by mu; nil unless status.State is up
	changed chan struct{} // protected by mu; closed and replaced at each change
}

// Start starts a lab and returns when it is up, at the second try if the first
// one died. ctx bounds the start only; Close ends the lab.
func Start(ctx context.Context, o Options) (*Lab, error) {
	o, err := o.normalise()
	if err != nil {
		return nil, err
	}
	dir, remove, err := makeStateDir(o.StateDir)
	if err != nil {
		return nil, err
	}
	o.StateDir = dir
	lock, err := lockState(dir)
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	l := &Lab{opts: o, lock: lock, removeDir: remove, changed: make(chan struct{})}
	l.Client = NewClient(l.dialUp)
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.status = Status{
		PID: os.Getpid(), Forward: o.Forward, StateDir: dir,
		Console: filepath.Join(dir, consoleFile),
	}
	if err := l.start(ctx); err != nil {
		// The status file tells a waiting "up" why.
		l.set(func(s *Status) { s.State, s.Error = StateFailed, err.Error() }, nil)
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context) error {
	l.set(func(s *Status) { s.State = StateStarting }, nil)
	if err := l.listen(); err != nil {
		return err
	}
	if err := placeInit(ctx, l.opts.Init, l.opts.StateDir); err != nil {
		return err
	}
	tools, err := GetTools(ctx)
	if err != nil {
		return err
	}
	l.tools = tools
	m, err := l.bootOnce(ctx)
	for err != nil && ctx.Err() == nil && l.died(err) {
		m, err = l.bootOnce(ctx)
	}
	if err != nil {
		return err
	}
	l.wg.Go(func() { l.supervise(m) })
	return nil
}

// bootOnce boots and makes the result current.
func (l *Lab) bootOnce(ctx context.Context) (*machine, error) {
	begin := time.Now()
	m, err := boot(ctx, l.tools, l.opts)
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	l.set(func(s *Status) {
		s.State, s.QEMUPID, s.BootSeconds = StateUp, m.qemu.pid(), took.Seconds()
		s.Tools, s.Inside = l.tools.Manifest, &m.info
		if l.opts.Service != nil {
			s.Service = serviceRunning
		}
	}, m)
	l.opts.Log.Info("lab is up", "seconds", took.Seconds(), "kernel", m.info.Kernel, "qemu", l.tools.Manifest.QEMU)
	for _, missing := range m.info.Missing {
		l.opts.Log.Warn("lab lacks a kernel module", "reason", missing)
	}
	l.startService(m)
	return m, nil
}

// died records a death and says whether the lab may be started again.
func (l *Lab) died(err error) bool {
	again := false
	l.set(func(s *Status) {
		s.Deaths = append(s.Deaths, cause(err))
		s.QEMUPID, s.Inside, s.Service = 0, nil, ""
		if again = s.Restarts < maxRestarts; again {
			s.State = StateRestarting
			s.Restarts++
		} else {
			s.State, s.Error = StateFailed, err.Error()
		}
	}, nil)
	if again {
		l.opts.Log.Warn("lab died: starting it again, once", "cause", cause(err))
	} else {
		l.opts.Log.Error("lab died again: giving up", "cause", cause(err))
	}
	return again
}

// supervise keeps the lab alive until Close or its second death.
func (l *Lab) supervise(m *machine) {
	for m != nil {
		err := l.watch(m)
		m.close()
		if l.ctx.Err() != nil {
			return
		}
		m = nil
		for m == nil && l.ctx.Err() == nil && l.died(err) {
			m, err = l.bootOnce(l.ctx)
		}
	}
}

// watch returns when m is dead, with the reason, or when the lab is closed.
func (l *Lab) watch(m *machine) error {
	client := NewClient(m.dial)
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return nil
		case <-m.dead:
			return withLogs(errKernelDied, l.opts.StateDir)
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(l.ctx, probeTimeout)
		_, err := client.Info(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return withLogs(fmt.Errorf("lab: no answer for %v", probeTimeout), l.opts.StateDir)
		case errors.Is(err, ErrDied):
			// Its init has gone, or its kernel is about to.
			return withLogs(errKernelDied, l.opts.StateDir)
		}
	}
}

// set changes the status and wakes those who wait for it.
func (l *Lab) set(change func(*Status), current *machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.status.State
	change(&l.status)
	if l.status.State != before {
		l.status.Since = time.Now().UTC()
	}
	l.current = current
	close(l.changed)
	l.changed = make(chan struct{})
	if err := l.status.write(l.opts.StateDir); err != nil {
		l.opts.Log.Error("status not written", "error", err)
	}
}

// Status returns what is known of the lab now.
func (l *Lab) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// dialUp opens a stream to the lab, waiting for it while it is started again.
func (l *Lab) dialUp(ctx context.Context) (net.Conn, error) {
	for {
		l.mu.Lock()
		m, changed, st := l.current, l.changed, l.status
		l.mu.Unlock()
		if st.State == StateFailed {
			return nil, fmt.Errorf("lab: failed: %s", st.Error)
		}
		if m != nil {
			conn, err := m.dial(ctx)
			if err == nil {
				return conn, nil
			}
			// Dead, and the supervisor will say so in a moment.
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// Close ends the lab and everything in it.
func (l *Lab) Close() error {
	l.set(func(s *Status) { s.State, s.QEMUPID, s.PID, s.Inside = StateDown, 0, 0, nil }, nil)
	return l.close()
}

func (l *Lab) close() error {
	l.cancel()
	l.wg.Wait()
	return errors.Join(l.removeDir(), l.lock.Close())
}
