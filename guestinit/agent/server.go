package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
	"thaw/guestinit/launch"
	"thaw/guestinit/reaper"
	"thaw/guestinit/workspace"
)

// Bounds on what one host can hold open.
const (
	maxConns = 512
	maxExecs = 256
)

// Config of a Server. Every field but those marked optional is needed.
type Config struct {
	// Workspace is the directory that file requests are confined to and that
	// jobs start in.
	Workspace string
	// Disks are the paths whose file systems are checked for being full when
	// a job ends. Optional.
	Disks    []string
	Launcher *launch.Launcher
	Reaper   *reaper.Reaper
	Cgroups  *cgroup.Manager
	// Log writes one line for people. It may be slow (a serial console), so
	// it is used for faults alone.
	Log func(format string, args ...any)
	// Shutdown ends the machine. It is called once, after the request was
	// answered and every exec was killed. Optional.
	Shutdown func()
	// Image is the description of the image, as it is. Optional.
	Image []byte
	// Phases returns the steps of the boot so far. Optional.
	Phases func() []agentproto.Phase
	// Drain is how long processes that outlive an exec's main one may go on
	// before they are killed. 0 is DefaultDrain.
	Drain time.Duration
	// Renewer does the steps of a generation. Optional: without one,
	// generations are refused.
	Renewer Renewer
}

// DefaultDrain lets a pipeline's last program finish after its shell.
const DefaultDrain = 250 * time.Millisecond

// Server is the agent.
type Server struct {
	cfg       Config
	files     *workspace.Tree
	warm      *warmSet
	null      *os.File // /dev/null, standard input of jobs without one
	buffers   sync.Pool
	execIDs   atomic.Uint64
	wg        sync.WaitGroup // connections
	freezer   freezer
	lingering lingering

	mu    sync.Mutex
	conns map[*conn]struct{}      // protected by mu
	execs map[*execution]struct{} // protected by mu
	ended map[uint64]*ended       // persistent execs that ended; protected by mu
	// endedOrder has the keys of ended, oldest first; protected by mu.
	endedOrder []uint64
	ends       uint64       // of main processes; protected by mu
	closing    bool         // protected by mu
	l          net.Listener // protected by mu
}

// New returns a server.
func New(cfg Config) (*Server, error) {
	if cfg.Drain == 0 {
		cfg.Drain = DefaultDrain
	}
	files, err := workspace.Open(cfg.Workspace)
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("agent: open null device: %w", err), files.Close())
	}
	return &Server{
		cfg: cfg, files: files, null: null, warm: newWarmSet(),
		buffers: sync.Pool{New: func() any { return new(buffer) }},
		conns:   make(map[*conn]struct{}),
		execs:   make(map[*execution]struct{}),
		ended:   make(map[uint64]*ended),
	}, nil
}

// buffer holds one frame with its header.
type buffer [agentproto.HeaderSize + agentproto.MaxPayload]byte

// Serve accepts connections until the listener or the server is closed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.l = l
	closing := s.closing
	s.mu.Unlock()
	if closing {
		return l.Close()
	}
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.Closing() || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of descriptors or memory for an instant: the agent stays.
			s.cfg.Log("agent: accept: %v", err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		c := newConn(s, nc)
		if !s.addConn(c) {
			nc.Close()
			continue
		}
		s.wg.Go(func() {
			defer s.removeConn(c)
			c.serve()
		})
	}
}

func (s *Server) addConn(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.conns) >= maxConns {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) removeConn(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Closing reports whether the server takes no more work, as it does once a
// shutdown was asked for.
func (s *Server) Closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// addExec registers an exec, unless there are too many or the server closes.
func (s *Server) addExec(e *execution) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return &agentproto.Error{Code: agentproto.CodeBusy, Message: "shutting down"}
	case len(s.execs) >= maxExecs:
		return &agentproto.Error{Code: agentproto.CodeBusy, Message: fmt.Sprintf("%d execs are running", len(s.execs))}
	}
	s.execs[e] = struct{}{}
	return nil
}

func (s *Server) removeExec(e *execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.execs, e)
}

func (s *Server) execCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.execs)
}

// endPatience bounds the wait for killed execs to end.
const endPatience = 5 * time.Second

// stopExecs refuses new execs from now on and kills those that run. It waits
// for them, at most as long as patience.
func (s *Server) stopExecs(patience time.Duration) {
	s.mu.Lock()
	s.closing = true
	for e := range s.execs {
		e.abandon()
	}
	s.mu.Unlock()
	for end := time.Now().Add(patience); s.execCount() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// Close kills every exec, closes every connection and the listener, and waits
// for them.
func (s *Server) Close() error {
	s.stopExecs(0)
	s.mu.Lock()
	l := s.l
	for c := range s.conns {
		c.nc.Close()
	}
	s.mu.Unlock()
	var err error
	if l != nil {
		if err = l.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	s.wg.Wait() // nobody starts an exec from here on
	s.stopExecs(endPatience)
	return errors.Join(err, s.files.Close(), s.null.Close())
}

// guard is deferred by every goroutine that handles a peer's bytes: a panic
// ends the connection and is logged, the agent lives.
func (s *Server) guard(c *conn) {
	if r := recover(); r != nil {
		s.cfg.Log("agent: panic: %v\n%s", r, debug.Stack())
		c.nc.Close()
	}
}

// guardExec is the same for the goroutines of an exec, which it ends.
func (s *Server) guardExec(e *execution) {
	if r := recover(); r != nil {
		s.cfg.Log("agent: panic in exec %d: %v\n%s", e.id, r, debug.Stack())
		if c := e.link.acquireNow(func() {}); c != nil {
			c.nc.Close()
			e.link.release(c, true, func() {})
		}
		e.abandon()
	}
}
