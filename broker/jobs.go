package broker

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"thaw/api"
	"thaw/broker/eventlog"
)

// AddInput stores an upload.
func (b *Broker) AddInput(tenant string, r io.Reader) (api.Input, error) {
	in, err := b.inputs.Add(tenant, r)
	if err != nil {
		return api.Input{}, refuse(err)
	}
	return api.Input{Input: in.ID, SHA256: in.SHA256, Size: in.Size}, nil
}

// RemoveInput deletes an upload, once no job needs it.
func (b *Broker) RemoveInput(tenant, id string) error {
	if err := b.inputs.Remove(tenant, id); err != nil {
		return refuse(err)
	}
	return nil
}

// Submit checks a request and queues it, or refuses it with a reason.
func (b *Broker) Submit(tenant string, r api.JobRequest) (api.Job, error) {
	p, bad := newPlan(r, b.most)
	if bad != nil {
		return api.Job{}, bad
	}
	b.chooseClass(&p)
	if err := b.cfg.Launcher.Check(p.runtime.image); err != nil {
		return api.Job{}, refuse(err)
	}
	if bad := b.pinInputs(tenant, &p); bad != nil {
		return api.Job{}, bad
	}
	j, err := b.admit(tenant, p)
	if err != nil {
		b.unpinInputs(&p)
		return api.Job{}, refuse(err)
	}
	return j.view(), nil
}

// admit makes the job of a plan and starts it, or fails without a trace.
func (b *Broker) admit(tenant string, p plan) (*job, error) {
	j := &job{
		id: "job-" + strings.ToLower(rand.Text()[:14]), tenant: tenant, plan: p, created: time.Now().UTC(), ended: make(chan struct{}),
		log: eventlog.New(eventlog.Options{MaxBytes: b.cfg.LogBytes, Attach: b.cfg.AttachWait, Stall: b.cfg.StallWait}),
	}
	j.result.Artifacts = []api.Artifact{}
	j.dir = filepath.Join(b.cfg.StateDir, "jobs", j.id)
	j.ctx, j.cancel = context.WithCancelCause(context.Background())

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return nil, api.Errorf(api.CodeShuttingDown, "the daemon is stopping")
	}
	if open, waiting := b.countOpen(tenant); open >= b.cfg.TenantJobs || waiting >= b.cfg.TenantQueue {
		return nil, api.Errorf(api.CodeQuotaExceeded, "you have %d unfinished jobs already, and %d of them wait", open, waiting).
			WithRemedy("wait for some to end, or cancel them")
	}
	var err error
	if j.ticket, err = b.pool.Enter(tenant, p.need()); err != nil {
		return nil, err
	}
	b.jobs[j.id] = j
	b.order = append(b.order, j)
	b.retire(tenant, nil)
	j.enter(api.StateQueued)
	b.running.Go(func() { b.run(j) })
	return j, nil
}

// countOpen counts a tenant's unfinished jobs, and those of them that wait for
// admission. Called under b.mu.
func (b *Broker) countOpen(tenant string) (open, waiting int) {
	for _, j := range b.order {
		if j.tenant != tenant || j.over() {
			continue
		}
		open++
		if !j.ticket.Admitted() {
			waiting++
		}
	}
	return open, waiting
}

func (j *job) over() bool { return closed(j.ended) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// retire deletes a tenant's oldest finished jobs beyond those that are kept, but
// not the one that has ended just now. Called under b.mu.
func (b *Broker) retire(tenant string, ended *job) {
	finished, kept := 0, int64(0)
	for i := len(b.order) - 1; i >= 0; i-- {
		j := b.order[i]
		if j.tenant != tenant || !j.over() {
			continue
		}
		finished++
		for _, a := range j.artifacts {
			kept += a.Size
		}
		if j == ended || finished <= b.cfg.KeepTenantJobs && kept <= b.cfg.KeepTenantBytes {
			continue
		}
		if err := b.forget(j); err != nil {
			b.cfg.Log.Warn("retired job left files", "job", j.id, "error", err)
		}
	}
}

// forget drops a finished job and its files. Preconditions: mu is held.
func (b *Broker) forget(j *job) error {
	delete(b.jobs, j.id)
	for i, have := range b.order {
		if have == j {
			b.order = append(b.order[:i:i], b.order[i+1:]...)
			break
		}
	}
	if err := os.RemoveAll(j.dir); err != nil {
		return fmt.Errorf("broker: remove job: %w", err)
	}
	return nil
}

// find looks up a tenant's job. That of another is as unknown as none.
func (b *Broker) find(tenant, id string) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[id]
	if j == nil || j.tenant != tenant {
		return nil, api.Errorf(api.CodeNotFound, "there is no job %q", id).WithRemedy("`thaw jobs ls` lists your jobs")
	}
	return j, nil
}

// Jobs lists a tenant's jobs, newest first. Their results name no files: those of
// many jobs together know no bound.
func (b *Broker) Jobs(tenant string) []api.Job {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []api.Job{}
	for i := len(b.order) - 1; i >= 0; i-- {
		if b.order[i].tenant != tenant {
			continue
		}
		v := b.order[i].view()
		if v.Result != nil { // the view's own
			v.Result.Artifacts, v.Result.Rejected = []api.Artifact{}, nil
		}
		out = append(out, v)
	}
	return out
}

// Job shows a tenant's job.
func (b *Broker) Job(tenant, id string) (api.Job, error) {
	j, err := b.find(tenant, id)
	if err != nil {
		return api.Job{}, err
	}
	return j.view(), nil
}

// Cancel decides that a job is cancelled. It fails when the outcome is decided already.
func (b *Broker) Cancel(tenant, id string) (api.Job, error) {
	j, err := b.find(tenant, id)
	if err != nil {
		return api.Job{}, err
	}
	if !j.decide(api.StateCancelled, api.Errorf(api.CodeCancelled, "the job was cancelled")) {
		return api.Job{}, api.Errorf(api.CodeConflict, "job %s has its outcome already", id)
	}
	return j.view(), nil
}

// Delete removes a finished job, its log and its artifacts.
func (b *Broker) Delete(tenant, id string) error {
	j, err := b.find(tenant, id)
	if err != nil {
		return err
	}
	if !j.over() {
		return api.Errorf(api.CodeConflict, "job %s is not finished", id).WithRemedy("cancel it first")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.jobs[id] != j {
		return api.Errorf(api.CodeNotFound, "there is no job %q", id)
	}
	if err := b.forget(j); err != nil {
		return refuse(err)
	}
	return nil
}

// Events attaches a reader to a job's events after the one with an id. The caller closes it.
func (b *Broker) Events(tenant, id string, after uint64) (*eventlog.Reader, error) {
	j, err := b.find(tenant, id)
	if err != nil {
		return nil, err
	}
	return j.log.Subscribe(after), nil
}

// Manifest lists a job's artifacts; there are none before it is finished.
func (b *Broker) Manifest(tenant, id string) (api.Manifest, error) {
	j, err := b.find(tenant, id)
	if err != nil {
		return api.Manifest{}, err
	}
	v := j.view()
	m := api.Manifest{Job: v.ID, State: v.State, Artifacts: []api.Artifact{}}
	if v.Result != nil {
		m.Artifacts, m.Rejected, m.RejectedCount = v.Result.Artifacts, v.Result.Rejected, v.Result.RejectedCount
	}
	return m, nil
}

// Artifact opens an artifact's content. The path is compared with the manifest's,
// never used as a path.
func (b *Broker) Artifact(tenant, id, path string) (api.Artifact, *os.File, error) {
	j, err := b.find(tenant, id)
	if err != nil {
		return api.Artifact{}, nil, err
	}
	if j.over() {
		for _, a := range j.artifacts {
			if a.Path != path {
				continue
			}
			f, err := os.Open(a.Stored)
			if err != nil {
				return api.Artifact{}, nil, refuse(fmt.Errorf("broker: open artifact: %w", err))
			}
			return wireArtifact(a), f, nil
		}
	}
	return api.Artifact{}, nil, api.Errorf(api.CodeNotFound, "job %s has no artifact %q", id, path)
}
