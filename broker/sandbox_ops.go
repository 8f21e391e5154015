package broker

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"thaw/api"
	"thaw/broker/catalogue"
	"thaw/broker/steps"
)

// operation is the context of a change to a machine. It outlives a caller who goes
// away: half of a rollback is no machine.
func (b *Broker) operation(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), b.cfg.OperationTimeout)
}

// Checkpoint saves a sandbox, which runs on. A paused one runs for the moment that
// its guest needs to stand still by itself.
func (b *Broker) Checkpoint(ctx context.Context, tenant, id string, r api.CheckpointRequest) (api.CheckpointAnswer, error) {
	s, err := b.findSandbox(tenant, id)
	if err != nil {
		return api.CheckpointAnswer{}, err
	}
	if err := checkLabels(r.Labels); err != nil {
		return api.CheckpointAnswer{}, err
	}
	p, err := b.checkpoint(ctx, s, CheckpointSpec{Name: r.Name, Labels: r.Labels, Tracker: r.Tracker, CopyAhead: r.CopyAhead}, nil)
	if err != nil {
		return api.CheckpointAnswer{}, refuse(err)
	}
	if r.Durable {
		if err := p.Wait(ctx); err != nil {
			return api.CheckpointAnswer{}, refuse(err)
		}
	}
	v := p.Snapshot()
	return api.CheckpointAnswer{Snapshot: v, Record: *v.Record}, nil
}

// checkpoint makes one, because of a policy's decision or, nil, because somebody asked.
func (b *Broker) checkpoint(ctx context.Context, s *sandbox, spec CheckpointSpec, why *steps.Decision) (*catalogue.Pending, error) {
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.running.Done()
	if err := b.snapshots.Of(s.tenant).Room(); err != nil {
		return nil, err
	}
	if err := s.take(ctx, api.SandboxRunning, api.SandboxPaused); err != nil {
		return nil, err
	}
	defer s.give()
	ctx, cancel := b.operation(ctx)
	defer cancel()
	c, err := s.machine.Checkpoint(ctx, spec)
	if err != nil {
		return nil, b.failed(s, err)
	}
	r := c.Record()
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	s.note(r, c.ID(), state)
	s.steps.Reset()
	p := b.snapshots.Of(s.tenant).Add(c, api.Snapshot{
		Name: spec.Name, Labels: spec.Labels, Image: s.image, MemoryMiB: s.class.MemoryMiB, VCPUs: s.class.VCPUs, Created: time.Now().UTC(),
		Generation: s.machine.Record().Generation,
	})
	b.running.Go(func() {
		err := p.Wait(context.Background())
		s.steps.Taken(why, c.Record(), err)
	})
	return p, nil
}

// failed sorts the failure of an operation: a machine that it has cost ends its
// sandbox for this reason.
func (b *Broker) failed(s *sandbox, err error) error {
	e := refuse(err)
	timer := time.NewTimer(endWait / 10)
	defer timer.Stop()
	select {
	case <-s.machine.Ended():
		s.stop(e)
	case <-timer.C:
	}
	return e
}

// Rollback puts a sandbox back in place. Cells and programs that run in it end with
// an error; a paused sandbox runs afterwards.
func (b *Broker) Rollback(ctx context.Context, tenant, id string, r api.RollbackRequest) (api.Sandbox, error) {
	s, err := b.findSandbox(tenant, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	if err := s.take(ctx, api.SandboxRunning, api.SandboxPaused); err != nil {
		return api.Sandbox{}, err
	}
	defer s.give()
	s.mu.Lock()
	target := s.snapshot
	s.mu.Unlock()
	if r.Snapshot != "" {
		to, err := b.snapshots.Of(tenant).Usable(r.Snapshot)
		if err != nil {
			return api.Sandbox{}, err
		}
		target = to.ID
	}
	s.mu.Lock()
	s.rewound++
	s.mu.Unlock()
	ctx, cancel := b.operation(ctx)
	defer cancel()
	record, err := s.machine.Rollback(ctx, target)
	if err != nil {
		return api.Sandbox{}, b.failed(s, err)
	}
	s.note(record, target, api.SandboxRunning)
	s.steps.Reset()
	return b.sandboxView(s), nil
}

// Fork makes sandboxes that start where this one is now, or at a snapshot.
func (b *Broker) Fork(ctx context.Context, tenant, id string, r api.ForkRequest) (api.ForkAnswer, error) {
	s, err := b.findSandbox(tenant, id)
	if err != nil {
		return api.ForkAnswer{}, err
	}
	fleet, err := b.fleet()
	if err != nil {
		return api.ForkAnswer{}, err
	}
	setDefault(&r.Count, 1)
	if r.Count < 0 || r.Count > maxForks {
		return api.ForkAnswer{}, api.Errorf(api.CodeRequestInvalid, "%d forks at a time are not possible", r.Count).WithRemedy("ask for %d at most", maxForks)
	}
	from := catalogue.Owned{Snapshot: api.Snapshot{Image: s.image, MemoryMiB: s.class.MemoryMiB, VCPUs: s.class.VCPUs}}
	if r.Snapshot != "" {
		if from, err = b.snapshots.Of(tenant).Usable(r.Snapshot); err != nil {
			return api.ForkAnswer{}, err
		}
	}
	var answer api.ForkAnswer
	made, err := b.makeSandboxes(ctx, tenant, wanted{from, r.Count, r.LifetimeSeconds, s.steps.Policy(), s.tracker}, func(ctx context.Context, specs []RestoreSpec) ([]WarmMachine, error) {
		answer.Snapshot = from.ID
		if from.ID == "" { // only now: there is room for the forks
			p, err := b.checkpoint(ctx, s, CheckpointSpec{Labels: map[string]string{labelMadeFor: "fork"}}, nil)
			if err != nil {
				return nil, err
			}
			v := p.Snapshot()
			answer.Snapshot, answer.Checkpoint = v.ID, v.Record
		}
		begin := time.Now()
		machines, err := fleet.Fork(ctx, answer.Snapshot, specs)
		answer.TotalMS = milliseconds(time.Since(begin))
		return machines, err
	})
	if err != nil {
		return api.ForkAnswer{}, refuse(err)
	}
	for _, s := range made {
		answer.Sandboxes = append(answer.Sandboxes, b.sandboxView(s))
	}
	return answer, nil
}

// labelMadeFor says what a snapshot was made for that nobody asked for by itself.
const (
	labelMadeFor  = "thaw.made-for"
	madeForPolicy = "policy"
)

// Pause stops a sandbox's vCPUs. Its memory stays.
func (b *Broker) Pause(ctx context.Context, tenant, id string) (api.Sandbox, error) {
	return b.switchState(ctx, tenant, id, "pause", api.SandboxRunning, api.SandboxPaused, WarmMachine.Pause)
}

// Resume lets a paused sandbox run on. It is the same machine: its generation stays,
// and its clock has gone on.
func (b *Broker) Resume(ctx context.Context, tenant, id string) (api.Sandbox, error) {
	return b.switchState(ctx, tenant, id, "resume", api.SandboxPaused, api.SandboxRunning, WarmMachine.Resume)
}

func (b *Broker) switchState(ctx context.Context, tenant, id, op string, from, to api.SandboxState, do func(WarmMachine, context.Context) error) (api.Sandbox, error) {
	s, err := b.findSandbox(tenant, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	if err := s.take(ctx, from); err != nil {
		return api.Sandbox{}, err
	}
	defer s.give()
	ctx, cancel := b.operation(ctx)
	defer cancel()
	begin := time.Now()
	if err := do(s.machine, ctx); err != nil {
		return api.Sandbox{}, b.failed(s, err)
	}
	s.note(api.Record{
		Op: op, Machine: s.id, Generation: s.machine.Record().Generation, TotalMS: milliseconds(time.Since(begin)),
	}, "", to)
	return b.sandboxView(s), nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// Bounds of labels, in bytes.
const (
	maxLabelName  = 64
	maxLabelValue = 256
)

func checkLabels(labels map[string]string) error {
	for k, v := range labels {
		if strings.HasPrefix(k, "thaw.") {
			return api.Errorf(api.CodeRequestInvalid, "label %.64q is refused: those that begin with thaw. are the daemon's", k)
		}
		if k == "" || len(k) > maxLabelName || len(v) > maxLabelValue || !printable(k) || !printable(v) {
			return api.Errorf(api.CodeRequestInvalid, "label %.64q is refused", k).
				WithCause(fmt.Errorf("a name has 1 to %d bytes, a value at most %d, both printable", maxLabelName, maxLabelValue))
		}
	}
	return nil
}
