package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/catalogue"
	"thaw/broker/steps"
	"thaw/snapshot/policy"
)

const (
	defaultLifetime = time.Hour
	maxSeconds      = 24 * 3600 // of a lifetime, a cell, or a program
	// maxEnded is how many ended sandboxes of a tenant are remembered.
	maxEnded = 64
	maxForks = 256
)

// fleet is the fleet, or the error that there is none.
func (b *Broker) fleet() (Fleet, error) {
	if b.cfg.Fleet == nil {
		return nil, api.Errorf(api.CodeTemplatesOff, "this daemon boots every machine: it has no sandboxes or snapshots").
			WithRemedy("start it with --templates=on")
	}
	return b.cfg.Fleet, nil
}

// Snapshots is a tenant's view of its snapshots.
func (b *Broker) Snapshots(tenant string) (catalogue.View, error) {
	if _, err := b.fleet(); err != nil {
		return catalogue.View{}, err
	}
	return b.snapshots.Of(tenant), nil
}

// CreateSandbox makes a sandbox from an image's template or from a snapshot.
func (b *Broker) CreateSandbox(ctx context.Context, tenant string, r api.SandboxRequest) (api.Sandbox, error) {
	fleet, err := b.fleet()
	if err != nil {
		return api.Sandbox{}, err
	}
	var from catalogue.Owned
	switch {
	case (r.Image == "") == (r.Snapshot == ""):
		return api.Sandbox{}, api.Errorf(api.CodeRequestInvalid, "name either an image or a snapshot")
	case !slices.Contains([]api.Shell{"", api.ShellGeneric, api.ShellBound, api.ShellRehearsed}, r.Shell):
		return api.Sandbox{}, api.Errorf(api.CodeRequestInvalid, "a sandbox cannot be made of a %.32q shell", r.Shell).
			WithRemedy("%s, %s or %s", api.ShellGeneric, api.ShellBound, api.ShellRehearsed)
	case r.Snapshot != "" && (r.MemoryMiB != 0 || r.VCPUs != 0):
		return api.Sandbox{}, api.Errorf(api.CodeRequestInvalid, "a snapshot has its own memory and vCPUs")
	case r.Snapshot != "":
		from, err = b.snapshots.Of(tenant).Usable(r.Snapshot)
	default:
		from, err = b.templateFor(ctx, fleet, r)
	}
	if err != nil {
		return api.Sandbox{}, refuse(err)
	}
	made, err := b.makeSandboxes(ctx, tenant, wanted{from, 1, r.LifetimeSeconds, r.Policy, r.Tracker}, func(ctx context.Context, specs []RestoreSpec) ([]WarmMachine, error) {
		specs[0].Shell = r.Shell
		m, err := fleet.Restore(ctx, specs[0])
		return []WarmMachine{m}, err
	})
	if err != nil {
		return api.Sandbox{}, refuse(err)
	}
	return b.sandboxView(made[0]), nil
}

// templateFor finds or makes the template that a request starts from.
func (b *Broker) templateFor(ctx context.Context, fleet Fleet, r api.SandboxRequest) (catalogue.Owned, error) {
	p, bad := findProfile(r.Image)
	if bad != nil {
		return catalogue.Owned{}, bad
	}
	if err := b.cfg.Launcher.Check(p.image); err != nil {
		return catalogue.Owned{}, err
	}
	memory, vcpus := r.MemoryMiB, r.VCPUs
	setDefault(&memory, defaultSandboxMiB)
	setDefault(&vcpus, 1)
	class, ok := classFor(fleet.Classes(), memory, vcpus)
	if !ok {
		return catalogue.Owned{}, api.Errorf(api.CodeLimitImpossible, "there is no class of machines with %d MiB and %d vCPUs", memory, vcpus).
			WithRemedy("/v1/info lists the classes")
	}
	id, err := fleet.Template(ctx, p.image, class)
	if err != nil {
		return catalogue.Owned{}, err
	}
	return catalogue.Owned{Snapshot: api.Snapshot{ID: id, Kind: api.KindTemplate, Image: p.image, MemoryMiB: class.MemoryMiB, VCPUs: class.VCPUs}}, nil
}

// wanted says what sandboxes are to be made.
type wanted struct {
	from            catalogue.Owned // snapshot, or only its size
	n               int
	lifetimeSeconds int64
	policy, tracker string
}

// makeSandboxes admits machines of a snapshot's size, has them made and keeps them as
// sandboxes: all of them or none.
func (b *Broker) makeSandboxes(ctx context.Context, tenant string, w wanted,
	restore func(context.Context, []RestoreSpec) ([]WarmMachine, error)) (made []*sandbox, err error) {
	from, n := w.from, w.n
	fleet, err := b.fleet()
	if err != nil {
		return nil, err
	}
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.running.Done()
	lifetime, err := seconds(w.lifetimeSeconds, defaultLifetime)
	if err != nil {
		return nil, err
	}
	done, err := b.enterSandboxes(tenant, n)
	if err != nil {
		return nil, err
	}
	defer done()
	class := Class{from.MemoryMiB, from.VCPUs}
	tickets, err := b.admitSandboxes(ctx, tenant, n, admission.Need{
		MemoryMiB: class.MemoryMiB + VMMMiB, DiskBytes: fleet.DiskBytes(), CPUMilli: int64(class.VCPUs) * 1000, Machines: 1,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release(tickets)
		}
	}()
	var specs []RestoreSpec
	var counters []*steps.Steps
	for range n {
		id := "sb-" + strings.ToLower(rand.Text()[:14])
		c, err := steps.New(id, w.policy, b.cfg.Records, b.cfg.Log)
		if err != nil {
			return nil, api.Errorf(api.CodeRequestInvalid, "there is no checkpoint policy %q", w.policy).WithCause(err).
				WithRemedy("choose one of: %s", strings.Join(policy.Names(), ", "))
		}
		specs, counters = append(specs, RestoreSpec{ID: id, Tenant: tenant, Snapshot: from.ID, Tracker: w.tracker}), append(counters, c)
	}
	machines, err := restore(ctx, specs)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range machines {
		s := &sandbox{
			steps: counters[i], tracker: w.tracker,
			id: specs[i].ID, tenant: tenant, image: from.Image, class: class, origin: m.Record().Snapshot, created: now, expires: now.Add(lifetime), ticket: tickets[i],
			machine: m, turn: make(chan struct{}, 1), end: make(chan struct{}), ended: make(chan struct{}),
			state: api.SandboxRunning, snapshot: m.Record().Snapshot, record: m.Record(), cells: map[string]bool{},
		}
		s.give()
		b.sandboxes[s.id] = s
		b.sandboxOrder = append(b.sandboxOrder, s)
		made = append(made, s)
		b.running.Go(func() { b.watch(s) })
		if b.stopping {
			s.stop(api.Errorf(api.CodeDaemonStopping, "the daemon was told to stop"))
		}
	}
	return made, nil
}

// seconds is a time that a request asks for, def where it does not.
func seconds(n int64, def time.Duration) (time.Duration, error) {
	switch {
	case n == 0:
		return def, nil
	case n < 0 || n > maxSeconds:
		return 0, api.Errorf(api.CodeLimitImpossible, "%d seconds are not possible", n).WithRemedy("ask for 1 to %d, a day", maxSeconds)
	}
	return time.Duration(n) * time.Second, nil
}

// enterSandboxes counts n sandboxes that are being made against the tenant's quota,
// until done.
func (b *Broker) enterSandboxes(tenant string, n int) (done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.making[tenant]
	for _, s := range b.sandboxOrder {
		if s.tenant == tenant && !s.over() {
			open++
		}
	}
	if open+n > b.cfg.TenantSandboxes {
		return nil, api.Errorf(api.CodeQuotaExceeded, "you have %d sandboxes already, of %d that you may have", open, b.cfg.TenantSandboxes).
			WithRemedy("remove some: `thaw sandbox rm`")
	}
	b.making[tenant] += n
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.making[tenant] -= n; b.making[tenant] == 0 {
			delete(b.making, tenant)
		}
	}, nil
}

// admitSandboxes takes n shares of the host, waiting for them within bounds: whoever
// asks for a sandbox waits for it.
func (b *Broker) admitSandboxes(ctx context.Context, tenant string, n int, need admission.Need) (tickets []*admission.Ticket, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.SandboxWait, errFull)
	defer cancel()
	defer func() {
		if err != nil {
			release(tickets)
			tickets = nil
		}
	}()
	for range n {
		t, err := b.pool.Enter(tenant, need)
		if err != nil {
			return tickets, err
		}
		tickets = append(tickets, t)
	}
	for _, t := range tickets {
		if err := t.Wait(ctx); errors.Is(err, errFull) {
			return tickets, api.Errorf(api.CodeQueueFull, "the host has no room for %d more machines of %d MiB now", n, need.MemoryMiB).
				WithCause(fmt.Errorf("waited for %s", b.cfg.SandboxWait)).WithRemedy("remove sandboxes, or wait for jobs to end")
		} else if err != nil {
			return tickets, err
		}
	}
	return tickets, nil
}

var errFull = errors.New("broker: the host is full")

func release(tickets []*admission.Ticket) {
	for _, t := range tickets {
		t.Release()
	}
}

// sandboxesBySnapshot has the ids of a tenant's sandboxes by the snapshot that they continue.
func (b *Broker) sandboxesBySnapshot(tenant string) map[string][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	on := map[string][]string{}
	for _, s := range b.sandboxOrder {
		if s.tenant == tenant && !s.over() {
			s.mu.Lock()
			on[s.snapshot] = append(on[s.snapshot], s.id)
			s.mu.Unlock()
		}
	}
	return on
}

// openSandboxes counts those of all tenants that hold a machine.
func (b *Broker) openSandboxes() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, s := range b.sandboxOrder {
		if !s.over() {
			n++
		}
	}
	return n
}

func (s *sandbox) over() bool { return closed(s.ended) }

// retireSandboxes forgets a tenant's oldest ended sandboxes. Called under b.mu.
func (b *Broker) retireSandboxes(tenant string) {
	ended := 0
	for i := len(b.sandboxOrder) - 1; i >= 0; i-- {
		s := b.sandboxOrder[i]
		if s.tenant != tenant || !s.over() {
			continue
		}
		if ended++; ended > maxEnded {
			b.forgetSandbox(s)
		}
	}
}

// forgetSandbox drops an ended sandbox. Preconditions: b.mu is held.
func (b *Broker) forgetSandbox(s *sandbox) {
	delete(b.sandboxes, s.id)
	for i, have := range b.sandboxOrder {
		if have == s {
			b.sandboxOrder = append(b.sandboxOrder[:i:i], b.sandboxOrder[i+1:]...)
			return
		}
	}
}

// findSandbox looks up a tenant's sandbox. That of another is as unknown as none.
func (b *Broker) findSandbox(tenant, id string) (*sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sandboxes[id]
	if s == nil || s.tenant != tenant {
		return nil, api.Errorf(api.CodeSandboxNotFound, "there is no sandbox %q", id).WithRemedy("`thaw sandbox ls` lists your sandboxes")
	}
	return s, nil
}

func (b *Broker) sandboxView(s *sandbox) api.Sandbox {
	v := s.view()
	v.NotEnforced = b.notEnforced()
	return v
}

// Sandboxes lists a tenant's sandboxes, newest first.
func (b *Broker) Sandboxes(tenant string) []api.Sandbox {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []api.Sandbox{}
	for i := len(b.sandboxOrder) - 1; i >= 0; i-- {
		if s := b.sandboxOrder[i]; s.tenant == tenant {
			out = append(out, b.sandboxView(s))
		}
	}
	return out
}

// Sandbox shows a tenant's sandbox.
func (b *Broker) Sandbox(tenant, id string) (api.Sandbox, error) {
	s, err := b.findSandbox(tenant, id)
	if err != nil {
		return api.Sandbox{}, err
	}
	return b.sandboxView(s), nil
}

// RemoveSandbox destroys a sandbox and waits until its machine is gone. Its
// snapshots stay.
func (b *Broker) RemoveSandbox(ctx context.Context, tenant, id string) error {
	s, err := b.findSandbox(tenant, id)
	if err != nil {
		return err
	}
	s.stop(api.Errorf(api.CodeCancelled, "the sandbox was removed"))
	select {
	case <-s.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetSandbox(s)
	return nil
}
