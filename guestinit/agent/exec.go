package agent

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
	"thaw/guestinit/launch"
	"thaw/guestinit/reaper"
)

// execution is one running exec.
type execution struct {
	s       *Server
	link    *link
	id      uint64
	req     agentproto.ExecRequest
	group   *cgroup.Group
	proc    *reaper.Proc
	started time.Time
	detail  string         // of the cause; set by await
	spent   cgroup.CPUTime // before it became the job that it is; see jobTerms
	outputs string         // of the job; see jobTerms
	unsure  bool           // something may live in group: it could not be looked at; of supervise

	stdin          *stdin // nil if the job has none
	stdout, stderr *output
	control        *os.File // the agent's end of the job's descriptor 3, or nil

	terms     chan terms // new ones, for await
	mainEnded uint64     // when the main process ended, in Server.ends; protected by Server.mu

	cancel    chan struct{} // closed when the host asks for the end
	abandoned chan struct{} // closed when nobody waits for the result any more
	finished  chan struct{} // closed when everything of the exec is gone

	cancelOnce, abandonOnce sync.Once
}

// startExec starts what the request asks for and leaves it running.
func (c *conn) startExec(payload []byte) error {
	var req agentproto.ExecRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	e, err := c.s.launch(req, false)
	if err != nil {
		return c.sendError(err)
	}
	_, err = e.attach(c)
	return err
}

// launch starts a program, with a control socket at its descriptor 3 if
// control. Nobody is attached to it yet; one that is not persistent must be
// attached to at once.
func (s *Server) launch(req agentproto.ExecRequest, control bool) (*execution, error) {
	e := &execution{
		s: s, link: newLink(), id: s.execIDs.Add(1), req: req, terms: make(chan terms),
		cancel: make(chan struct{}), abandoned: make(chan struct{}), finished: make(chan struct{}),
	}
	if err := s.freezer.gate.enter(); err != nil {
		return nil, err
	}
	defer s.freezer.gate.leave()
	if err := s.addExec(e); err != nil {
		return nil, err
	}
	if err := e.start(control); err != nil {
		s.removeExec(e)
		return nil, err
	}
	if e.stdin != nil {
		go e.stdin.run()
	}
	go e.stdout.run()
	go e.stderr.run()
	go e.supervise()
	return e, nil
}

// start makes the group and the pipes and launches the program.
func (e *execution) start(control bool) (err error) {
	s := e.s
	e.fillDefaults()
	path, err := launch.LookPath(e.req.Argv[0], e.req.Env)
	if err != nil {
		return err
	}
	if e.group, err = s.cfg.Cgroups.New(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			e.group.Remove()
		}
	}()
	err = e.group.SetLimits(cgroup.Limits{
		MemoryBytes: e.req.Limits.MemoryBytes, Pids: e.req.Limits.Pids, CPUMilli: e.req.Limits.CPUMilli,
	})
	if err != nil {
		return err
	}
	p, err := launch.NewPipes(e.req.Stdin, control, int(e.req.UID), int(e.req.GID))
	if err != nil {
		return err
	}
	defer p.CloseJobSide()
	in := p.JobStdin
	if in < 0 {
		in = int(s.null.Fd())
	}
	e.started = time.Now()
	e.proc, err = s.cfg.Launcher.Start(launch.Spec{
		Path: path, Argv: e.req.Argv, Env: e.req.Env, Dir: e.req.Cwd,
		UID: e.req.UID, GID: e.req.GID, CgroupFD: e.group.FD(),
		Stdio:   [3]int{in, p.JobStdout, p.JobStderr},
		ExtraFD: max(p.JobControl, 0),
		Rlimits: launch.Rlimits(e.req.Limits),
	})
	if err != nil {
		p.CloseAgentSide()
		return launch.ExplainStart(err, e.req.Cwd, path)
	}
	if e.req.Stdin {
		e.stdin = newStdin(e, p.Stdin)
	}
	e.control = p.Control
	e.stdout = newOutput(e, p.Stdout, agentproto.FrameStdout, e.req.StdoutCap)
	e.stderr = newOutput(e, p.Stderr, agentproto.FrameStderr, e.req.StderrCap)
	return nil
}

func (e *execution) fillDefaults() {
	r := &e.req
	if r.UID == 0 {
		r.UID = agentproto.DefaultID
	}
	if r.GID == 0 {
		r.GID = agentproto.DefaultID
	}
	if r.Cwd == "" {
		r.Cwd = e.s.cfg.Workspace
	}
	if r.Grace == 0 {
		r.Grace = agentproto.DefaultGrace
	}
	r.Env = launch.Environment(r.Env)
}

// handle deals with a frame that arrives on c while the exec runs.
func (e *execution) handle(c *conn, f agentproto.Frame) error {
	switch f.Type {
	case agentproto.FrameStdin:
		if e.stdin == nil {
			return fmt.Errorf("agent: stdin frame for an exec without: %w", agentproto.ErrProtocol)
		}
		return e.link.use(c, func() error {
			return e.stdin.add(f.Payload, f.Flags&agentproto.FlagEnd != 0)
		})
	case agentproto.FrameSignal:
		var m agentproto.Signal
		if err := agentproto.Decode(f.Payload, &m); err != nil {
			return err
		}
		// ErrGone: it has ended, and its exit status is on the way.
		_ = e.proc.SignalGroup(unix.Signal(m.Number))
		return nil
	case agentproto.FrameCancel:
		e.cancelOnce.Do(func() { close(e.cancel) })
		return nil
	}
	return fmt.Errorf("agent: %s frame while an exec runs: %w", f.Type, agentproto.ErrProtocol)
}

// abandon has the exec killed at once. Safe to call more than once.
func (e *execution) abandon() {
	e.abandonOnce.Do(func() {
		close(e.abandoned)
		e.link.abandon()
	})
}

func (e *execution) isAbandoned() bool {
	select {
	case <-e.abandoned:
		return true
	default:
		return false
	}
}

// supervise sees the exec to its end and reports it.
func (e *execution) supervise() {
	defer e.s.guardExec(e)
	defer close(e.finished)
	defer e.s.removeExec(e)
	defer func() {
		if e.control != nil {
			e.control.Close()
		}
	}()
	dead := false
	defer func() {
		if dead {
			e.group.RemoveLater()
		} else {
			e.group.Remove() // kills what is left, whatever happened above
		}
	}()

	forced := e.await()
	wall := time.Since(e.started)
	e.s.noteMainEnded(e)
	leftovers := e.drain()
	dead = !leftovers && !e.unsure
	status := e.status(forced, wall)
	status.Killed = leftovers
	e.deliverExit(status)
}
