package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"thaw/api"
	"thaw/broker/berth"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/internal/unixfd"
	"thaw/vmm/vmmproc"
)

// Machine is a booted machine. All it says comes from a hostile guest or from the VMM
// process beside it.
type Machine struct {
	booter *Booter
	spec   Spec
	proc   *vmmproc.Process
	client *agentclient.Client
	berth  *berth.Berth
	phases []api.Phase
	env    []string // that the image brings

	ended chan struct{} // closed when exit is set
	exit  vmmproc.Exit

	ready     chan struct{} // closed when the agent has said so
	readyOnce sync.Once
	readyInfo agentproto.Info // set before ready is closed
}

// start makes the machine and waits until it is ready. What it took is given back
// by Close, also when it fails half-way.
func (m *Machine) start(ctx context.Context) error {
	spec, handed, err := m.materialise(ctx)
	defer closeAll(handed)
	if err != nil {
		return err
	}
	begin := time.Now()
	if m.proc, err = vmmproc.Start(ctx, spec); err != nil {
		return startError(ctx, err)
	}
	m.berth.Handed()
	m.berth.OnClose("thaw-vmm", m.proc.Close)
	go m.watch()
	if err := m.berth.Started(m.proc.PID()); err != nil {
		return m.whyDead(ctx, err)
	}
	if err := m.awaitReady(ctx); err != nil {
		return err
	}
	m.client = agentclient.New(func(ctx context.Context) (net.Conn, error) { return m.berth.Dial(ctx, agentproto.Port) })
	m.berth.OnClose("agent connections", m.client.Close)
	m.notePhases(time.Since(begin))
	return nil
}

// notePhases lists where the start's time went: the VMM's phases as it measured
// them, then those of the guest, whose clock starts with its kernel.
func (m *Machine) notePhases(total time.Duration) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	for _, p := range m.proc.Phases() {
		m.phases = append(m.phases, api.Phase{Name: p.Name, MS: float64(p.Micros) / 1000})
	}
	var last time.Duration
	for _, p := range m.readyInfo.Phases {
		m.phases = append(m.phases, api.Phase{Name: "guest " + Printable(p.Name), MS: ms(p.At - last)})
		last = p.At
	}
	m.phases = append(m.phases, api.Phase{Name: "vmm to ready", MS: ms(total)})
}

// watch notes the end of the process.
func (m *Machine) watch() {
	x, err := m.proc.Wait(context.Background())
	if err != nil {
		x = vmmproc.Exit{Reason: vmmproc.Crashed, Detail: err.Error()}
	}
	m.exit = x
	close(m.ended)
}

// awaitReady waits for the agent's message, within bounds.
func (m *Machine) awaitReady(ctx context.Context) error {
	timer := time.NewTimer(m.booter.cfg.ReadyTimeout)
	defer timer.Stop()
	select {
	case <-m.ready:
		return nil
	case <-m.ended:
		return exitedEarly(m.exit)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	}
	consoleCtx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	console, err := m.proc.Console(consoleCtx)
	if err != nil {
		console = []byte("(no console: " + err.Error() + ")")
	}
	return api.Errorf(api.CodeGuestNotReady, "the guest was not ready after %s", m.booter.cfg.ReadyTimeout).
		WithCause(errors.New("last console lines:\n" + LastLines(console))).
		WithRemedy("check that kernel and image fit this host (`thaw doctor`)")
}

// whyDead prefers the news that the process is gone to a failure that follows from it.
func (m *Machine) whyDead(ctx context.Context, err error) error {
	select {
	case <-m.ended:
		return exitedEarly(m.exit)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Second):
		return err
	}
}

// connect hands the VMM a stream for a port that the guest dialled: the ready port,
// once. Called from goroutines of vmmproc.
func (m *Machine) connect(port uint32) (*os.File, error) {
	if port != agentproto.ReadyPort {
		return nil, fmt.Errorf("boot: nothing listens on port %d", port)
	}
	err := errors.New("boot: the guest was ready before")
	var theirs *os.File
	m.readyOnce.Do(func() {
		var ours *net.UnixConn
		if ours, theirs, err = unixfd.PairConn(unixfd.Stream); err != nil {
			return
		}
		go m.readReady(ours)
	})
	return theirs, err
}

// readReady takes one ready frame. A guest that sends anything else is never ready.
func (m *Machine) readReady(c net.Conn) {
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(m.booter.cfg.ReadyTimeout)); err != nil {
		return
	}
	f, err := agentproto.NewReader(c).Next()
	if err != nil || f.Type != agentproto.FrameReady {
		m.booter.cfg.Log.Warn("guest sent no ready frame", "machine", m.spec.ID, "error", err)
		return
	}
	if err := agentproto.Decode(f.Payload, &m.readyInfo); err != nil {
		m.booter.cfg.Log.Warn("guest's ready frame is malformed", "machine", m.spec.ID, "error", err)
		return
	}
	close(m.ready)
}

// Process is the machine's thaw-vmm.
func (m *Machine) Process() *vmmproc.Process { return m.proc }

// Client talks to the machine's agent.
func (m *Machine) Client() *agentclient.Client { return m.client }

// Env is the environment that the image brings.
func (m *Machine) Env() []string { return m.env }

// Ended is closed when the machine's process is gone; from then on Exit tells how.
func (m *Machine) Ended() <-chan struct{} { return m.ended }

// Exit is how the process ended.
func (m *Machine) Exit() vmmproc.Exit { return m.exit }

// Phases are the timed parts of the start.
func (m *Machine) Phases() []api.Phase { return m.phases }

// Close destroys the machine and gives back all that it held. The steps have bounds of
// their own; ctx is for the wait as a whole.
func (m *Machine) Close(ctx context.Context) error {
	if m.berth == nil {
		return nil
	}
	return m.berth.Close(ctx)
}
