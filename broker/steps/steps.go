// Package steps counts the steps of a sandbox (cells, programs) and asks its policy
// after each whether to checkpoint, with a record of every answer (requirement B10).
package steps

import (
	"log/slog"
	"sync"
	"time"

	"thaw/api"
	"thaw/snapshot/policy"
)

// ByHand is the policy of checkpoints that somebody asked for.
const ByHand = "by-hand"

// Steps are those of one sandbox. Its methods may be called from any goroutine.
type Steps struct {
	machine string
	spec    string // of the policy
	records *policy.Writer
	log     *slog.Logger

	mu     sync.Mutex
	policy policy.Policy // protected by mu, as is the rest
	n      int           // steps since the sandbox was made
	since  int           // steps since the last checkpoint
}

// New returns the steps of a machine. The policy is never for spec "". records may be
// nil: nothing is written then.
func New(machine, spec string, records *policy.Writer, log *slog.Logger) (*Steps, error) {
	if spec == "" {
		spec = "never"
	}
	p, err := policy.Parse(spec)
	if err != nil {
		return nil, err
	}
	return &Steps{machine: machine, spec: spec, policy: p, records: records, log: log}, nil
}

// Policy is the policy as it was asked for, or never.
func (s *Steps) Policy() string { return s.spec }

// Done counts a step that has ended, and says whether it is to be checkpointed.
func (s *Steps) Done() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.since++
	// Counting pages costs a pause of its own: what is not known counts as changed.
	if s.policy.Checkpoint(policy.Step{N: s.n, Since: s.since, Pages: -1, DiskBytes: -1}) {
		return true
	}
	if s.spec != "never" {
		s.write(policy.Record{Policy: s.spec})
	}
	return false
}

// Taken counts a checkpoint and writes its record once it is durable, or lost. by is
// the policy, or ByHand.
func (s *Steps) Taken(byHand bool, r api.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := s.spec
	if byHand {
		by = ByHand
	}
	line := policy.Record{
		Policy: by, Taken: true, Snapshot: r.Snapshot, Parent: r.Parent, Depth: r.Depth, Tracker: r.Tracker,
		Dirty: r.Candidates, Stored: r.Pages, Zero: r.ZeroPages, Duplicate: r.SamePages, DiskBytes: r.DiskBytes, Bytes: r.Bytes,
		FreezeMS: r.FreezeMS, PauseMS: r.PauseMS, CopyMS: r.CopyAheadMS,
	}
	if r.Consistent != nil && r.Durable != nil {
		line.DurableMS = policy.Milliseconds(r.Durable.Sub(*r.Consistent))
	}
	if err != nil {
		line.Error = err.Error()
	}
	s.write(line)
}

// Reset begins to count anew: the machine was checkpointed or rolled back.
func (s *Steps) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = 0
}

// write appends a record. Preconditions: mu is held.
func (s *Steps) write(r policy.Record) {
	if s.records == nil {
		return
	}
	r.Time, r.Machine, r.Step = time.Now().UTC(), s.machine, s.n
	if err := s.records.Write(r); err != nil {
		s.log.Warn("record of a checkpoint is lost", "machine", s.machine, "error", err)
	}
}
