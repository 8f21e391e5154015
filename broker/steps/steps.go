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

	policy policy.Policy // its Checkpoint is protected by mu

	mu      sync.Mutex
	n       int    // steps since the sandbox was made; protected by mu, as is the rest
	since   int    // steps since the last checkpoint
	changed Change // by steps since then; -1: not known
	resets  int
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

// Change is how much of the machine is not as it was when it was last restored, rolled
// back or checkpointed.
type Change struct {
	Pages     int64 // of guest memory that differ
	DiskBytes int64 // of blocks in the machine's own layer of its disk
}

// Mark is what Begin leaves for Done.
type Mark struct {
	reset  int
	change *Change // nil: not known
}

// Begin is called before a step. count looks at the machine; it is only called for a policy
// that wants to know, and an error of it makes what changed unknown.
func (s *Steps) Begin(count func() (Change, error)) Mark {
	s.mu.Lock()
	m := Mark{reset: s.resets}
	s.mu.Unlock()
	m.change = s.count(count)
	return m
}

func (s *Steps) count(count func() (Change, error)) *Change {
	if !s.policy.NeedsPages() {
		return nil
	}
	c, err := count()
	if err != nil {
		s.log.Warn("changes of a machine could not be counted", "machine", s.machine, "error", err)
		return nil
	}
	return &c
}

// Decision is a policy's answer after a step.
type Decision struct {
	// Take says that the machine is to be checkpointed now.
	Take    bool
	decided *policy.Counts
}

// Done counts a step that has ended, and says whether it is to be checkpointed.
func (s *Steps) Done(m Mark, count func() (Change, error)) Decision {
	now := s.count(count)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.since++
	step := policy.Step{N: s.n, Since: s.since, Pages: -1, DiskBytes: -1}
	var d Decision
	if s.policy.NeedsPages() {
		s.add(m, now)
		step.Pages, step.DiskBytes = s.changed.Pages, s.changed.DiskBytes
		d.decided = &policy.Counts{Pages: step.Pages, DiskBytes: step.DiskBytes}
	}
	if d.Take = s.policy.Checkpoint(step); !d.Take && s.spec != "never" {
		s.write(policy.Record{Policy: s.spec, Decided: d.decided})
	}
	return d
}

// Failed counts what a step has changed that did not end as one, such as a cell that was
// cut off. It is no step, and nothing is decided.
func (s *Steps) Failed(m Mark, count func() (Change, error)) {
	now := s.count(count)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.policy.NeedsPages() {
		s.add(m, now)
	}
}

// add adds what a step has changed. Preconditions: mu is held.
func (s *Steps) add(m Mark, now *Change) {
	var before Change
	switch {
	case m.reset != s.resets: // all of it is since then
	case m.change == nil:
		now = nil
	default:
		before = *m.change
	}
	if now == nil || s.changed.Pages < 0 {
		s.changed = Change{-1, -1}
		return
	}
	s.changed.Pages += max(0, now.Pages-before.Pages)
	s.changed.DiskBytes += max(0, now.DiskBytes-before.DiskBytes)
}

// Taken counts a checkpoint and writes its record once it is durable, or lost. d is the
// policy's decision; nil: somebody asked for it.
func (s *Steps) Taken(d *Decision, r api.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := policy.Record{
		Policy: ByHand, Taken: true, Snapshot: r.Snapshot, Parent: r.Parent, Depth: r.Depth, Tracker: r.Tracker,
		Dirty: r.Candidates, Stored: r.Pages, Zero: r.ZeroPages, Duplicate: r.SamePages, DiskBytes: r.DiskBytes, Bytes: r.Bytes,
		FreezeMS: r.FreezeMS, PauseMS: r.PauseMS, CopyMS: r.CopyAheadMS,
	}
	if d != nil {
		line.Policy, line.Decided = s.spec, d.decided
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
	s.since, s.changed = 0, Change{}
	s.resets++
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
