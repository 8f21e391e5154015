package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/boot"
	"thaw/broker/catalogue"
	"thaw/broker/fleet"
	"thaw/broker/steps"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// restored implements broker.WarmMachine.
type restored struct {
	*fleet.Machine
	tenant string
	op     string   // that made it
	env    []string // of its image
}

// Ended implements broker.Machine.
func (m *restored) Ended() <-chan struct{} { return m.Exited() }

// Exit implements broker.Machine.
func (m *restored) Exit() broker.MachineExit { return machineExit(m.Machine.Exit()) }

// Phases implements broker.Machine.
func (m *restored) Phases() []api.Phase { return phases(m.Machine.Record().Phases) }

// Record implements broker.WarmMachine.
func (m *restored) Record() api.Record {
	r := m.Machine.Record()
	if r.Op == fleet.OpRollback {
		return wireRecord(r, "rollback")
	}
	return wireRecord(r, m.op)
}

// Agent implements broker.Machine.
func (m *restored) Agent() broker.Agent { return restoredAgent{agent{m.Machine.Agent(), m.env}, m} }

// Code implements broker.WarmMachine.
func (m *restored) Code(ctx context.Context, c broker.Cell, stdout, stderr io.Writer) (broker.CellEnd, error) {
	id, ok := m.Warm(c.Runtime)
	if !ok {
		return broker.CellEnd{}, noInterpreter(c.Runtime)
	}
	r, err := m.Machine.Agent().Code(ctx, agentproto.CodeRequest{ExecID: id, Source: c.Source}, agentclient.ExecIO{Stdout: stdout, Stderr: stderr})
	switch {
	case errors.Is(err, agentclient.ErrContextEnded):
		return broker.CellEnd{}, api.Errorf(api.CodeNoInterpreter, "the cell ended its interpreter").WithCause(err).WithRemedy("roll the sandbox back")
	case errors.Is(err, agentproto.ErrNotFound):
		return broker.CellEnd{}, noInterpreter(c.Runtime)
	case errors.Is(err, agentproto.ErrBusy):
		return broker.CellEnd{}, api.Errorf(api.CodeSandboxState, "the interpreter is busy with a cell that did not end when it was interrupted").
			WithCause(err).WithRemedy("roll the sandbox back")
	case err != nil:
		return broker.CellEnd{}, err
	}
	return broker.CellEnd{
		Status: api.CellStatus(r.Status), Value: r.Result, Cut: r.Cut, ErrorType: r.Type, ErrorText: r.Message,
		StdoutDropped: r.StdoutDropped, StderrDropped: r.StderrDropped,
	}, nil
}

// Checkpoint implements broker.WarmMachine.
func (m *restored) Checkpoint(ctx context.Context, spec broker.CheckpointSpec) (catalogue.Made, error) {
	c, err := m.Machine.Checkpoint(ctx, fleet.CheckpointSpec{
		Tenant: m.tenant, Name: spec.Name, Labels: spec.Labels, Tracker: spec.Tracker, CopyAhead: spec.CopyAhead,
	})
	if err != nil {
		return nil, snapshotError(err, api.CodeCheckpointFailed, "machine %s could not be saved", m.ID())
	}
	return &saved{checkpoint: c, record: wireRecord(c.Record, "checkpoint")}, nil
}

// Changed implements broker.WarmMachine.
func (m *restored) Changed(ctx context.Context) (steps.Change, error) {
	c, err := m.Machine.Changed(ctx)
	return steps.Change{Pages: int64(c.Pages), DiskBytes: c.DiskBytes}, err
}

// Rollback implements broker.WarmMachine.
func (m *restored) Rollback(ctx context.Context, snapshot string) (api.Record, error) {
	r, err := m.Machine.Rollback(ctx, snapshot)
	if err != nil {
		return api.Record{}, snapshotError(err, api.CodeRollbackFailed, "machine %s could not be put back to snapshot %s", m.ID(), snapshot)
	}
	return wireRecord(r, "rollback"), nil
}

// saved implements catalogue.Made.
type saved struct {
	checkpoint *fleet.Checkpoint

	mu     sync.Mutex
	record api.Record // protected by mu
}

// ID implements catalogue.Made.
func (s *saved) ID() string { return s.checkpoint.ID }

// Record implements catalogue.Made.
func (s *saved) Record() api.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record
}

// Durable implements catalogue.Made.
func (s *saved) Durable(ctx context.Context) error {
	m, err := s.checkpoint.Durable(ctx)
	if err != nil {
		return snapshotError(err, api.CodeCheckpointFailed, "snapshot %s could not be stored", s.checkpoint.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record.DiskBytes, s.record.Bytes = m.Record.DiskBytes, m.Record.Bytes
	s.record.Consistent, s.record.Durable = instant(m.Record.Consistent), instant(m.Record.Durable)
	return nil
}

// restoredAgent is the agent of a machine in which interpreters may wait.
type restoredAgent struct {
	agent
	machine *restored
}

// Start implements broker.Agent. A script of a runtime that waits runs in what waits.
func (a restoredAgent) Start(ctx context.Context, e broker.Exec, stdout, stderr io.Writer) (broker.Process, error) {
	id, waits := a.machine.Warm(e.Runtime)
	if e.Runtime == "" || !waits {
		return a.fresh(ctx, e, stdout, stderr, "")
	}
	r := a.request(e)
	p, err := a.client.Run(ctx, agentproto.RunRequest{
		ExecID: id, Argv: r.Argv, Env: r.Env, Limits: r.Limits, StdoutCap: r.StdoutCap, StderrCap: r.StderrCap, Outputs: outDir,
	}, agentclient.ExecIO{Stdout: stdout, Stderr: stderr})
	var reported *agentproto.Error
	switch {
	case errors.As(err, &reported):
		// The interpreter answers before it begins: nothing of the program has run, and
		// the agent has ended what waited.
		return a.fresh(ctx, e, stdout, stderr, boot.Printable(reported.Error()))
	case err != nil:
		return nil, fmt.Errorf("launch: run in the warm interpreter: %w", err)
	}
	return process{p, true, boot.Printable(p.Started().Cold)}, nil
}

// fresh starts a new process; why is why what waited did not run it.
func (a restoredAgent) fresh(ctx context.Context, e broker.Exec, stdout, stderr io.Writer, why string) (broker.Process, error) {
	// A template may have the output directory already; looking costs less than making.
	if _, err := a.client.ListFiles(ctx, outDir, 1); err != nil && !errors.Is(err, agentclient.ErrTruncated) {
		if err := a.makeOut(ctx); err != nil {
			return nil, err
		}
	}
	p, err := a.exec(ctx, e, stdout, stderr)
	var reported *agentproto.Error
	if errors.As(err, &reported) {
		return nil, api.Errorf(api.CodeExecFailed, "the program could not be started").WithCause(errors.New(boot.Printable(reported.Error())))
	}
	if err != nil {
		return nil, err
	}
	return process{p.p, why != "", why}, nil
}

// wireRecord is a record as the interface tells it.
func wireRecord(r fleet.Record, op string) api.Record {
	w := api.Record{
		Op: op, Machine: r.Machine, Snapshot: r.Snapshot, Parent: r.Parent, Generation: r.Generation, Shell: api.Shell(r.Shell),
		TotalMS: r.Total, AckMS: r.Ack, FreezeMS: r.Freeze, PauseMS: r.Pause, Phases: phases(r.Phases), Tracker: r.Tracker,
		Candidates: int64(r.Candidates), Pages: int64(r.Pages), ZeroPages: int64(r.ZeroPages), SamePages: int64(r.Same),
		PrivatePages: int64(r.Private), CopiedPages: int64(r.Copied + r.PutBack), Depth: r.Depth,
	}
	if r.Op == fleet.OpCheckpoint {
		w.Consistent = instant(r.At.Add(time.Duration(r.Total * float64(time.Millisecond))).UTC())
	}
	return w
}

func phases(list []fleet.Phase) []api.Phase {
	out := make([]api.Phase, 0, len(list))
	for _, p := range list {
		out = append(out, api.Phase{Name: boot.Printable(p.Name), MS: p.MS})
	}
	return out
}

// instant is a time that may be missing.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
