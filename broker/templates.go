package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thaw/api"
	"thaw/broker/ahead"
)

// Whether a job's machine is restored from a template or booted is a matter of speed
// alone: both are destroyed after the job, behind the same jail. So whatever stands in
// the way of a restored machine (no template yet, none for these limits, one that
// cannot be made, a guest that does not take its generation and is destroyed for it)
// leads to a booted one, before any of the job's code has run, and the result says
// why. A sandbox has no such way out: it fails.

// defaultSandboxMiB is the memory of a sandbox's machine unless said.
const defaultSandboxMiB = 512

// templateRetry is how long a template that could not be made is not tried again.
const templateRetry = time.Minute

// classFor is the smallest class with at least this memory and these vCPUs.
func classFor(classes []Class, memoryMiB int64, vcpus int) (Class, bool) {
	best, found := Class{}, false
	for _, c := range classes {
		fits := c.MemoryMiB >= memoryMiB && c.VCPUs >= vcpus
		if fits && (!found || c.MemoryMiB < best.MemoryMiB || c.MemoryMiB == best.MemoryMiB && c.VCPUs < best.VCPUs) {
			best, found = c, true
		}
	}
	return best, found
}

// chooseClass decides whether a plan's machine is to be restored, and in which class.
// Limits within the class are the guest's to enforce.
func (b *Broker) chooseClass(p *plan) {
	if b.cfg.Fleet == nil {
		return
	}
	class, ok := classFor(b.cfg.Fleet.Classes(), machineMiB(p.limits.MemoryMiB), p.vcpus())
	disk := b.cfg.Fleet.DiskBytes()
	switch {
	case !ok:
		p.whyCold = fmt.Sprintf("there is no class of machines for %d MiB and %d vCPUs", p.limits.MemoryMiB, p.vcpus())
	case p.limits.WorkspaceBytes != disk:
		p.whyCold = fmt.Sprintf("templates have a disk of %d bytes, limit workspace_bytes is %d", disk, p.limits.WorkspaceBytes)
	case class.MemoryMiB+VMMMiB > b.cfg.Capacity.MemoryMiB:
		p.whyCold = fmt.Sprintf("the host cannot give the %d MiB of the class", class.MemoryMiB)
	default:
		p.class = class
	}
}

// jobMachine makes a job's machine, and notes what from.
func (b *Broker) jobMachine(j *job) (Machine, error) {
	start := api.Start{Shell: api.ShellCold, WhyCold: j.plan.whyCold}
	defer func() { j.record(func(r *api.Result) { r.Start = &start }) }()
	if j.plan.class != (Class{}) {
		m, err := b.restoreJob(j)
		if err == nil {
			r := m.Record()
			start = api.Start{Shell: r.Shell, Snapshot: r.Snapshot, Record: &r}
			return m, nil
		}
		if j.ctx.Err() != nil {
			return nil, context.Cause(j.ctx)
		}
		start.WhyCold = err.Error()
		b.cfg.Log.Info("job's machine is booted", "job", j.id, "why", err)
	}
	memory := machineMiB(j.plan.limits.MemoryMiB)
	return b.cfg.Launcher.Launch(j.ctx, LaunchSpec{
		ID: j.id, Image: j.plan.runtime.image, VCPUs: j.plan.vcpus(), MemoryMiB: memory, DiskBytes: j.plan.limits.WorkspaceBytes,
	})
}

func (b *Broker) restoreJob(j *job) (WarmMachine, error) {
	id, err := b.template(j.ctx, j.plan.runtime.image, j.plan.class)
	if err != nil {
		return nil, err
	}
	return b.cfg.Fleet.Restore(j.ctx, RestoreSpec{ID: j.id, Tenant: j.tenant, Snapshot: id, Job: j.plan.interpreter})
}

type templateKey struct {
	image string
	class Class
}

// template returns the template of a job that is there already, or has it made for
// those to come.
func (b *Broker) template(ctx context.Context, image string, c Class) (string, error) {
	id, err := b.templates.Get(ctx, templateKey{image, c}, b.cfg.TemplateWait)
	switch {
	case errors.Is(err, ahead.ErrBeingMade):
		return "", errors.New("the template is being made")
	case err != nil:
		return "", fmt.Errorf("the template of %s with %d MiB could not be made: %w", image, c.MemoryMiB, err)
	}
	return id, nil
}
