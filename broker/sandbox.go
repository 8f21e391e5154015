package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/steps"
)

// The life of a sandbox. It is made in one call: there is none before its guest has
// acknowledged its generation.
//
//	create, fork ──▶ running ◀──────▶ paused
//	                  │   pause, resume  │
//	                  └────────┬─────────┘
//	                           ▼  removed | lifetime over | machine gone | daemon stops
//	                         ended ──▶ (forgotten: removed, or too many ended ones)
//
// What changes the machine as a whole (checkpoint, rollback, fork, pause, resume)
// happens one at a time, in the order of arrival: sandbox.turn. Cells and programs run
// beside it. A rollback ends them.
type sandbox struct {
	id      string
	tenant  string
	image   string
	class   Class
	origin  string
	created time.Time
	expires time.Time
	ticket  *admission.Ticket
	machine WarmMachine
	steps   *steps.Steps
	tracker string // of its checkpoints; empty: the fleet's choice

	turn  chan struct{} // holds one token: the right to change the machine
	end   chan struct{} // closed to end it
	ended chan struct{} // closed when the machine is gone and its share is given back

	mu       sync.Mutex
	state    api.SandboxState // protected by mu, as is the rest
	snapshot string           // that the machine continues
	record   api.Record       // of the last operation
	reason   *api.Error       // why it is to end, once that is decided
	cells    map[string]bool  // runtimes that run a cell
	rewound  int              // rollbacks that have begun
}

// view is the sandbox as its tenant sees it.
func (s *sandbox) view() api.Sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := api.Sandbox{
		ID: s.id, State: s.state, Image: s.image, MemoryMiB: s.class.MemoryMiB, VCPUs: s.class.VCPUs, Origin: s.origin, Policy: s.steps.Policy(), Tracker: s.tracker, Snapshot: s.snapshot,
		Generation: s.machine.Record().Generation, Created: s.created, Expires: s.expires, Record: s.record,
	}
	if s.state == api.SandboxEnded {
		v.Error = s.reason
	}
	return v
}

// take waits for the right to change the machine, which give gives back. It fails
// when the sandbox is not in one of the states.
func (s *sandbox) take(ctx context.Context, in ...api.SandboxState) error {
	select {
	case <-s.turn:
	case <-s.end:
		return s.notIn(in)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := s.notIn(in); err != nil {
		s.give()
		return err
	}
	return nil
}

func (s *sandbox) give() { s.turn <- struct{}{} }

// notIn is an error unless the sandbox is in one of the states.
func (s *sandbox) notIn(states []api.SandboxState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	if s.reason != nil {
		state = api.SandboxEnded
	}
	for _, ok := range states {
		if state == ok {
			return nil
		}
	}
	e := api.Errorf(api.CodeSandboxState, "sandbox %s is %s", s.id, state)
	switch {
	case state == api.SandboxPaused:
		return e.WithRemedy("`thaw sandbox resume %s` lets it run", s.id)
	case state == api.SandboxEnded && s.reason != nil:
		return e.WithCause(s.reason).WithRemedy("make another from its last snapshot: `thaw sandbox create --snapshot %s`", s.snapshot)
	}
	return e
}

// stop decides that the sandbox ends, and why. The first reason counts.
func (s *sandbox) stop(reason *api.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		s.reason = reason
		close(s.end)
	}
}

// note keeps the record of an operation and what follows from it.
func (s *sandbox) note(r api.Record, snapshot string, state api.SandboxState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != api.SandboxEnded {
		s.state = state
	}
	s.record = r
	if snapshot != "" {
		s.snapshot = snapshot
	}
}

// watch waits for the end of a sandbox and gives back what it held.
func (b *Broker) watch(s *sandbox) {
	lifetime := time.NewTimer(time.Until(s.expires))
	defer lifetime.Stop()
	select {
	case <-s.machine.Ended():
		// An operation that has cost the machine knows better why.
		timer := time.NewTimer(endWait)
		select {
		case <-s.turn:
		case <-s.end:
		case <-timer.C:
		}
		timer.Stop()
		s.stop(exitError(s.machine.Exit()))
	case <-lifetime.C:
		s.stop(api.Errorf(api.CodeSandboxExpired, "the sandbox's lifetime is over").WithRemedy("ask for a longer one (lifetime_seconds), a day at most"))
	case <-s.end:
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.cfg.CloseTimeout)
	err := s.machine.Close(ctx)
	cancel()
	s.mu.Lock()
	s.state = api.SandboxEnded
	if err != nil {
		s.reason = s.reason.WithCause(errors.Join(s.reason.Unwrap(), fmt.Errorf("cleaning up failed: %w", err)))
	}
	reason := s.reason
	s.mu.Unlock()
	s.ticket.Release()
	close(s.ended)
	b.cfg.Log.Info("sandbox ended", "sandbox", s.id, "tenant", s.tenant, "reason", reason.Message, "error", err)
	b.mu.Lock()
	b.retireSandboxes(s.tenant)
	b.mu.Unlock()
}
