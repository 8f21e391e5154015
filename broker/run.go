package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker/collect"
	"thaw/broker/output"
)

// run walks a job through its life. Whatever happens it ends in a final state.
func (b *Broker) run(j *job) {
	log := b.cfg.Log.With("job", j.id, "tenant", j.tenant)
	machine, err := b.walk(j)
	switch {
	case j.decided(): // cancelled or timed out, which is why walk returned
	case err != nil:
		j.decide(api.StateFailed, jobError(machine, err))
	default:
		j.decide(api.StateDone, nil)
	}
	j.enter(api.StateCleaning)
	b.clean(j, machine)
	j.finish()
	b.mu.Lock()
	b.retire(j.tenant, j)
	b.mu.Unlock()
	v := j.view()
	log.Info("job ended", "state", v.State, "error", errorText(v.Result.Error), "cleanup_ok", v.Result.CleanupOK)
}

func errorText(e *api.Error) string {
	if e == nil {
		return ""
	}
	return e.Error()
}

// walk does everything up to the outcome. The machine, if there is one, is
// returned for cleaning in every case.
func (b *Broker) walk(j *job) (Machine, error) {
	if err := j.ticket.Wait(j.ctx); err != nil {
		return nil, err
	}
	j.enter(api.StateAdmitted)
	j.enter(api.StateMaterialising)
	start := time.Now()
	m, err := b.jobMachine(j)
	if err != nil {
		return nil, err
	}
	ready := time.Now()
	if err := b.putInputs(j, m); err != nil {
		return m, err
	}
	j.record(func(r *api.Result) {
		r.Phases = append(m.Phases(), phase("ready", ready.Sub(start)), phase("inputs", time.Since(ready)))
	})
	if !j.enter(api.StateRunning) {
		return m, errors.New("broker: job cannot run from its state")
	}
	status, err := b.execute(j, m)
	if err != nil {
		return m, err
	}
	return m, b.collect(j, m, status.NoOutputs)
}

func phase(name string, d time.Duration) api.Phase {
	return api.Phase{Name: name, MS: float64(d.Microseconds()) / 1000}
}

// putInputs copies the inputs into the workspace.
func (b *Broker) putInputs(j *job, m Machine) error {
	ctx, cancel := context.WithTimeout(j.ctx, b.cfg.PutTimeout)
	defer cancel()
	for _, in := range j.plan.inputs {
		f, err := b.inputs.Open(in.ID)
		if err != nil {
			return fmt.Errorf("broker: %w", err)
		}
		err = m.Agent().Put(ctx, in.name, 0o644, in.Size, f)
		f.Close()
		if err != nil {
			return api.Errorf(api.CodeInputRejected, "input %q could not be put into the workspace", in.name).
				WithCause(err).WithRemedy("if the disk is full, raise limit workspace_bytes")
		}
	}
	return nil
}

// waited is what Process.Wait gave.
type waited struct {
	status ExitStatus
	err    error
}

// execute runs the program until it ends, or the job's context or wall clock or
// machine does.
func (b *Broker) execute(j *job, m Machine) (status ExitStatus, err error) {
	// Output goes on flowing during the grace of a job that is being ended.
	outCtx, stopOutput := context.WithCancel(context.WithoutCancel(j.ctx))
	defer stopOutput()
	l := j.plan.limits
	logged := func(event string) func([]byte) error {
		return func(b []byte) error { return j.log.AppendOutput(outCtx, event, encode(api.NewOutputEvent(b))) }
	}
	stdout := output.New(l.StdoutBytes, logged(api.EventStdout))
	stderr := output.New(l.StdoutBytes, logged(api.EventStderr))
	begin := time.Now()
	proc, err := b.start(outCtx, j, m, stdout, stderr)
	if err != nil {
		return status, err
	}
	ended := make(chan waited, 1)
	go func() {
		s, err := proc.Wait()
		ended <- waited{s, err}
	}()

	wall := time.NewTimer(time.Duration(l.WallSeconds) * time.Second)
	defer wall.Stop()
	var w *waited
	select {
	case got := <-ended:
		w = &got
	case <-m.Ended():
	case <-j.ctx.Done():
		w = b.stop(proc, ended, m)
	case <-wall.C:
		j.decide(api.StateTimedOut, api.Errorf(api.CodeTimedOut, "the job ran longer than %d s", l.WallSeconds).WithRemedy("raise limit wall_seconds"))
		w = b.stop(proc, ended, m)
	}
	stopOutput()
	if w != nil && w.err == nil {
		status = w.status
	}
	stdout.Flush()
	stderr.Flush()
	j.record(func(r *api.Result) {
		if w != nil && w.err == nil {
			exit := status.Exit
			r.Exit = &exit
			r.Start.Warm, r.Start.WhyFresh = status.Warm, status.WhyFresh
		}
		r.Usage = status.Usage
		r.Usage.WallMS = time.Since(begin).Milliseconds()
		r.Stdout, r.Stderr = stdout.Stats(status.StdoutDropped), stderr.Stats(status.StderrDropped)
	})
	switch {
	case j.ctx.Err() != nil:
		return status, context.Cause(j.ctx)
	case w == nil:
		return status, errors.New("broker: the machine ended under the program")
	case w.err != nil:
		return status, fmt.Errorf("broker: wait for the program: %w", w.err)
	}
	return status, nil
}

// start starts the program. The job's end and a time limit cut the start short; of
// a program that runs, they leave the connection alone: stop needs it.
func (b *Broker) start(ctx context.Context, j *job, m Machine, stdout, stderr *output.Stream) (Process, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(j.ctx, func() { cancel(context.Cause(j.ctx)) })
	defer unhook()
	timer := time.AfterFunc(b.cfg.StartTimeout, func() {
		cancel(api.Errorf(api.CodeAgentFailed, "the guest did not start the program within %s", b.cfg.StartTimeout))
	})
	defer timer.Stop()
	l := j.plan.limits
	proc, err := m.Agent().Start(ctx, Exec{
		Argv: j.plan.argv, Env: j.plan.env, Runtime: j.plan.interpreter, MemoryBytes: l.MemoryMiB * mib, Pids: l.Pids, CPUMilli: int64(l.CPUCores * 1000), OutputBytes: l.StdoutBytes,
	}, stdout, stderr)
	switch {
	case err == nil:
		return proc, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("broker: start the program: %w", err)
}

// stop ends a program: SIGTERM, a grace, SIGKILL, a shorter grace. What still runs
// then ends with its machine.
func (b *Broker) stop(proc Process, ended <-chan waited, m Machine) *waited {
	for _, step := range []struct {
		signal unix.Signal
		grace  time.Duration
	}{{unix.SIGTERM, b.cfg.StopGrace}, {unix.SIGKILL, b.cfg.KillGrace}} {
		// A guest that does not take the signal is dealt with by the steps that follow.
		if err := proc.Signal(step.signal); err != nil {
			b.cfg.Log.Debug("signal not delivered", "signal", step.signal, "error", err)
		}
		timer := time.NewTimer(step.grace)
		select {
		case w := <-ended:
			timer.Stop()
			return &w
		case <-m.Ended():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return nil
}

// collect fetches and validates the outputs of a program that ended by itself; none: the guest says that there are none,
// which is as good as an empty list of its.
func (b *Broker) collect(j *job, m Machine, none bool) error {
	j.enter(api.StateCollecting)
	ctx, cancel := context.WithTimeout(j.ctx, b.cfg.CollectTimeout)
	defer cancel()
	rules := collect.Rules{
		MaxFiles: int(j.plan.limits.OutputFiles), MaxBytes: j.plan.limits.OutputBytes, Types: j.plan.request.OutputTypes, Attempt: 1,
	}
	var err error
	out := &collect.Outcome{}
	if !none {
		out, err = collect.Fetch(ctx, m.Agent().Outputs(), j.dir, rules)
	}
	if err != nil {
		return api.Errorf(api.CodeCollectFailed, "the outputs could not be collected").WithCause(err)
	}
	j.enter(api.StateValidating)
	if err := out.Validate(rules); err != nil {
		return api.Errorf(api.CodeCollectFailed, "the outputs could not be validated").WithCause(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.artifacts = out.Artifacts
	for _, a := range out.Artifacts {
		j.result.Artifacts = append(j.result.Artifacts, wireArtifact(a))
	}
	for _, r := range out.Rejected {
		j.result.Rejected = append(j.result.Rejected, api.Rejected{Path: r.Path, Reason: r.Reason})
	}
	j.result.ArtifactCount, j.result.RejectedCount = len(out.Artifacts), out.Refused
	return nil
}

func wireArtifact(a collect.Artifact) api.Artifact {
	return api.Artifact{Path: a.Path, Size: a.Size, SHA256: a.SHA256, MediaType: a.MediaType, Attempt: a.Attempt}
}

// clean gives back all that the job held, and notes what could not be.
func (b *Broker) clean(j *job, m Machine) {
	var errs []error
	if m != nil {
		ctx, cancel := context.WithTimeout(context.Background(), b.cfg.CloseTimeout)
		errs = append(errs, m.Close(ctx))
		cancel()
	}
	b.unpinInputs(&j.plan)
	j.mu.Lock()
	if j.outcome != api.StateDone {
		// A job that is not done has no artifacts: those fetched before a late cancellation go.
		j.artifacts, j.result.Artifacts, j.result.Rejected = nil, []api.Artifact{}, nil
		j.result.ArtifactCount, j.result.RejectedCount = 0, 0
		errs = append(errs, removeContents(j.dir))
	}
	err := errors.Join(errs...)
	j.result.CleanupOK = err == nil
	if err != nil {
		j.result.CleanupErr = err.Error()
	}
	j.result.NotEnforced = b.notEnforced()
	j.mu.Unlock()
	j.ticket.Release()
	if err != nil {
		b.cfg.Log.Error("cleanup failed", "job", j.id, "error", err)
	}
}

func removeContents(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return fmt.Errorf("broker: list job directory: %w", err)
	}
	var errs []error
	for _, f := range files {
		if err := os.RemoveAll(f); err != nil {
			errs = append(errs, fmt.Errorf("broker: remove file: %w", err))
		}
	}
	return errors.Join(errs...)
}
