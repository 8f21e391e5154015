package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"thaw/api"
	"thaw/broker/output"
	"thaw/broker/steps"
)

const (
	defaultRunTime = 5 * time.Minute
	// runOutput is how many bytes of each stream of one cell or program are passed on.
	runOutput = 1 << 20
	// maxSource bounds a cell, in bytes, as its schema does in characters.
	maxSource = 1 << 20
)

// Emit passes an event on. An error of it ends the run.
type Emit func(name string, v any) error

// Run is a cell or a program of a sandbox that was checked and is to be run once.
type Run struct {
	broker  *Broker
	sandbox *sandbox
	timeout time.Duration
	rewound int // of the sandbox, when this was opened
	done    func()
	do      func(ctx context.Context, r *Run, stdout, stderr *output.Stream) api.RunResult
}

// OpenCode checks a cell. The caller must call Do.
func (b *Broker) OpenCode(tenant, id string, r api.CodeRequest) (*Run, error) {
	s, err := b.openRun(tenant, id)
	if err != nil {
		return nil, err
	}
	if len(r.Source) > maxSource || strings.ContainsRune(r.Source, 0) {
		return nil, api.Errorf(api.CodeRequestInvalid, "the cell is refused").WithCause(fmt.Errorf("at most %d bytes, none of them zero", maxSource))
	}
	timeout, err := seconds(r.TimeoutSeconds, defaultRunTime)
	if err != nil {
		return nil, err
	}
	runtime := r.Runtime
	if runtime == "" {
		runtime = defaultRuntime(s.image)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cells[runtime] {
		return nil, api.Errorf(api.CodeSandboxState, "sandbox %s runs another cell", s.id).
			WithRemedy("wait for it to end: cells of one interpreter run one after the other")
	}
	s.cells[runtime] = true
	return &Run{
		broker: b, sandbox: s, timeout: timeout, rewound: s.rewound,
		done: func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.cells, runtime)
		},
		do: func(ctx context.Context, run *Run, stdout, stderr *output.Stream) api.RunResult {
			return run.code(ctx, Cell{runtime, r.Source}, stdout, stderr)
		},
	}, nil
}

// OpenExec checks a program. The caller must call Do.
func (b *Broker) OpenExec(tenant, id string, r api.ExecRequest) (*Run, error) {
	s, err := b.openRun(tenant, id)
	if err != nil {
		return nil, err
	}
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return nil, api.Errorf(api.CodeRequestInvalid, "there is no program to run")
	}
	if err := checkArgs(r.Argv); err != nil {
		return nil, err
	}
	timeout, err := seconds(r.TimeoutSeconds, defaultRunTime)
	if err != nil {
		return nil, err
	}
	env, bad := environment(baseEnv, r.Env)
	if bad != nil {
		return nil, bad
	}
	e := Exec{
		Argv: r.Argv, Env: env, OutputBytes: runOutput, Pids: baseDefaults.Pids,
		MemoryBytes: memoryLimitFor(s.class.MemoryMiB) * mib, CPUMilli: int64(s.class.VCPUs) * 1000,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Run{
		broker: b, sandbox: s, timeout: timeout, rewound: s.rewound, done: func() {},
		do: func(ctx context.Context, run *Run, stdout, stderr *output.Stream) api.RunResult {
			return run.exec(ctx, e, stdout, stderr)
		},
	}, nil
}

func (b *Broker) openRun(tenant, id string) (*sandbox, error) {
	s, err := b.findSandbox(tenant, id)
	if err != nil {
		return nil, err
	}
	return s, s.notIn([]api.SandboxState{api.SandboxRunning})
}

// defaultRuntime is the interpreter that is meant when nobody says.
func defaultRuntime(image string) string {
	p, err := findProfile(image)
	if err != nil {
		return python.name
	}
	return p.interpreters[0].name
}

// Do runs it, passes its output to emit as events, and returns the result, which it
// does not emit. The end of ctx interrupts it.
func (r *Run) Do(ctx context.Context, emit Emit) api.RunResult {
	defer r.done()
	whole := context.WithoutCancel(ctx)
	count := func() (steps.Change, error) { return r.sandbox.machine.Changed(whole) }
	mark := r.sandbox.steps.Begin(count) // none of the time that it has: a checkpoint may be under way
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	var mu sync.Mutex // the streams are read by two goroutines
	sender := func(name string) func([]byte) error {
		return func(b []byte) error {
			mu.Lock()
			defer mu.Unlock()
			if err := emit(name, api.NewOutputEvent(b)); err != nil {
				cancel()
				return err
			}
			return nil
		}
	}
	stdout := output.New(runOutput, sender(api.EventStdout))
	stderr := output.New(runOutput, sender(api.EventStderr))
	begin := time.Now()
	result := r.do(ctx, r, stdout, stderr)
	stdout.Flush()
	stderr.Flush()
	result.DurationMS = milliseconds(time.Since(begin))
	result.Stdout, result.Stderr = stdout.Stats(result.Stdout.Dropped), stderr.Stats(result.Stderr.Dropped)
	if result.Error != nil {
		r.sandbox.steps.Failed(mark, count)
		return result
	}
	r.step(ctx, &result, r.sandbox.steps.Done(mark, count))
	return result
}

// step makes the checkpoint that the sandbox's policy wants after what ran. One that fails is no
// failure of what ran.
func (r *Run) step(ctx context.Context, result *api.RunResult, d steps.Decision) {
	s := r.sandbox
	if !d.Take {
		return
	}
	p, err := r.broker.checkpoint(ctx, s, CheckpointSpec{Labels: map[string]string{labelMadeFor: madeForPolicy}}, &d)
	if err != nil {
		s.steps.Taken(&d, api.Record{}, err)
		r.broker.cfg.Log.Warn("checkpoint of a policy failed", "sandbox", s.id, "error", err)
		return
	}
	result.Checkpoint = p.Snapshot().Record
}

// code runs a cell.
func (r *Run) code(ctx context.Context, c Cell, stdout, stderr *output.Stream) api.RunResult {
	end, err := r.sandbox.machine.Code(ctx, c, stdout, stderr)
	if err != nil {
		return api.RunResult{Error: r.failure(ctx, err)}
	}
	return api.RunResult{
		Status: end.Status, Value: end.Value, Cut: end.Cut, ErrorType: end.ErrorType, ErrorText: end.ErrorText, Exit: end.Exit,
		Stdout: api.StreamInfo{Dropped: end.StdoutDropped}, Stderr: api.StreamInfo{Dropped: end.StderrDropped},
	}
}

// exec runs a program: it gets the same ending as a job's when its time is over.
func (r *Run) exec(ctx context.Context, e Exec, stdout, stderr *output.Stream) api.RunResult {
	m := r.sandbox.machine
	// The connection must outlive ctx: stop needs it.
	conn, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	proc, err := m.Agent().Start(conn, e, stdout, stderr)
	if err != nil {
		return api.RunResult{Error: r.failure(ctx, err)}
	}
	ended := make(chan waited, 1)
	go func() {
		s, err := proc.Wait()
		ended <- waited{s, err}
	}()
	var w *waited
	select {
	case got := <-ended:
		w = &got
	case <-m.Ended():
	case <-ctx.Done():
		w = r.broker.stop(proc, ended, m)
	}
	switch {
	case w == nil:
		return api.RunResult{Error: r.failure(ctx, errors.New("broker: the machine ended under the program"))}
	case w.err != nil:
		return api.RunResult{Error: r.failure(ctx, w.err)}
	}
	result := api.RunResult{
		Exit: &w.status.Exit, Usage: &w.status.Usage,
		Stdout: api.StreamInfo{Dropped: w.status.StdoutDropped}, Stderr: api.StreamInfo{Dropped: w.status.StderrDropped},
	}
	if ctx.Err() != nil {
		result.Error = r.overtime()
	}
	return result
}

func (r *Run) overtime() *api.Error {
	return api.Errorf(api.CodeTimedOut, "it was ended: it ran longer than %s, or its caller went away", r.timeout).WithRemedy("ask for more with timeout_seconds")
}

// failure says why a run has no other result.
func (r *Run) failure(ctx context.Context, err error) *api.Error {
	s := r.sandbox
	s.mu.Lock()
	rewound := s.rewound
	s.mu.Unlock()
	if rewound != r.rewound {
		return api.Errorf(api.CodeRolledBack, "sandbox %s was rolled back while this ran", s.id)
	}
	if closed(s.end) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return api.Errorf(api.CodeSandboxState, "sandbox %s ended while this ran", s.id).WithCause(s.reason)
	}
	if ctx.Err() != nil {
		return r.overtime()
	}
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return jobError(s.machine, err)
}
