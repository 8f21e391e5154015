package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"thaw/api"
	"thaw/bench/stats"
	"thaw/snapshot/policy"
)

// TrajectoryConfig says what search to run and how.
type TrajectoryConfig struct {
	Config
	Expansions, Rollbacks int
	Run                   string   // RunExec or RunCell
	Policies              []string // as package policy names them
	Trackers              []string // each with a checkpoint after every step
}

// Strategy is a policy with a tracker.
type Strategy struct {
	Policy  string `json:"policy"`
	Tracker string `json:"tracker,omitempty"`
}

// String names it.
func (s Strategy) String() string {
	if s.Tracker == "" {
		return s.Policy
	}
	return s.Policy + ", " + s.Tracker
}

// Trajectory is the result of one strategy. Times are in milliseconds.
type Trajectory struct {
	Strategy
	Expansions  int     `json:"expansions"`
	Rollbacks   int     `json:"rollbacks"`
	Checkpoints int     `json:"checkpoints"`
	Replayed    int     `json:"replayed_steps"` // done again on the way to a node
	Total       float64 `json:"total_ms"`
	Steps       float64 `json:"steps_ms"` // the expansions themselves
	// Overhead is all other time, in hundredths of that of the steps.
	Overhead      float64 `json:"overhead_percent"`
	Checkpoint    float64 `json:"checkpoint_p50_ms"` // as the caller waits for it
	Checkpoint95  float64 `json:"checkpoint_p95_ms"`
	Pause         float64 `json:"pause_p50_ms"`
	Back          float64 `json:"rollback_p50_ms"`
	Back95        float64 `json:"rollback_p95_ms"`
	StoredPages   float64 `json:"stored_pages_p50"`
	Bytes         int64   `json:"bytes"` // of all checkpoints that are durable, the root's too, on disk
	Host          string  `json:"host"`
	Error         string  `json:"error,omitempty"`
	checkpointing []float64
	pauses        []float64
	pages         []float64
	backs         []float64
}

// TrajectoryOutput takes results as they come.
type TrajectoryOutput struct {
	Host       func(string)
	Warning    func(string)
	Trajectory func(Trajectory)
}

// neverPolicy is the strategy that others are compared with: what is not saved is done again.
const neverPolicy = "never"

// strategies lists what a configuration asks for.
func (c TrajectoryConfig) strategies() ([]Strategy, error) {
	var list []Strategy
	for _, p := range c.Policies {
		if _, err := policy.Parse(p); err != nil {
			return nil, err
		}
		list = append(list, Strategy{Policy: p})
	}
	for _, t := range c.Trackers {
		list = append(list, Strategy{Policy: "every-step", Tracker: t})
	}
	if c.Run != RunExec && c.Run != RunCell {
		return nil, fmt.Errorf("checkpoint: tests cannot be run by %.20q: %s or %s", c.Run, RunExec, RunCell)
	}
	return list, nil
}

// RunTrajectory runs the search once with each strategy, and reports whether all went
// through.
func RunTrajectory(ctx context.Context, cfg TrajectoryConfig, out TrajectoryOutput) (complete bool, err error) {
	strategies, err := cfg.strategies()
	if err != nil {
		return false, err
	}
	plan, err := newSearchPlan(cfg.Expansions, cfg.Rollbacks)
	if err != nil {
		return false, err
	}
	r, host, err := open(ctx, cfg.Config, "trajectory", out.Warning)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	out.Host(host)
	records, err := recordFile(cfg.RawDir)
	if err != nil {
		return false, err
	}
	defer records.Close()
	complete = true
	for _, s := range strategies {
		r.say("%d expansions with %d rollbacks: %s", cfg.Expansions, cfg.Rollbacks, s)
		t, err := r.trajectory(ctx, cfg, plan, s, policy.NewWriter(records))
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if t.Host = host; err != nil {
			t.Error, complete = err.Error(), false
		}
		out.Trajectory(t)
		if err := r.forgetAll(ctx); err != nil {
			return false, err
		}
	}
	return complete, nil
}

// recordFile is where the records of checkpoints go: beside the samples, or nowhere.
func recordFile(dir string) (io.WriteCloser, error) {
	if dir == "" {
		return discard{}, nil
	}
	f, err := os.OpenFile(filepath.Join(dir, "trajectory-records.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: open file of records: %w", err)
	}
	return f, nil
}

// discard is an io.WriteCloser that keeps nothing.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Close() error                { return nil }

// search is a trajectory under way.
type search struct {
	r       *rig
	run     string
	plan    searchPlan
	policy  policy.Policy
	records *policy.Writer
	t       *Trajectory
	sandbox api.Sandbox
	saved   map[int]string // snapshot of a node; the root has one unless nothing is ever saved
	since   map[int]int    // steps between a node and the last one saved above it, itself counted
}

func (r *rig) trajectory(ctx context.Context, cfg TrajectoryConfig, plan searchPlan, strategy Strategy, records *policy.Writer) (t Trajectory, err error) {
	t = Trajectory{Strategy: strategy, Expansions: cfg.Expansions, Rollbacks: cfg.Rollbacks}
	s := &search{r: r, run: cfg.Run, plan: plan, records: records, t: &t, saved: map[int]string{}, since: map[int]int{}}
	if s.policy, err = policy.Parse(strategy.Policy); err != nil {
		return t, err
	}
	if err := s.begin(ctx); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, r.remove(ctx, s.sandbox)) }()
	if strategy.Policy != neverPolicy {
		if err := s.checkpoint(ctx, 0); err != nil {
			return t, err
		}
		t.Checkpoints, t.checkpointing, t.pauses, t.pages = 0, nil, nil, nil // the root's is before the clock
	}
	start := time.Now()
	for node := 1; node < len(plan.parent); node++ {
		if err := s.expand(ctx, node); err != nil {
			return t, fmt.Errorf("checkpoint: step %d: %w", node, err)
		}
		if plan.back[node] < 0 {
			continue
		}
		if err := s.back(ctx, plan.back[node]); err != nil {
			return t, fmt.Errorf("checkpoint: back from step %d to %d: %w", node, plan.back[node], err)
		}
	}
	t.Total = round(ms(time.Since(start)))
	t.sum()
	list, err := r.client.Snapshots(ctx)
	if err != nil {
		return t, err
	}
	for _, one := range list {
		if one.Kind == api.KindCheckpoint {
			t.Bytes += one.Bytes
		}
	}
	return t, r.raw.Add("trajectory", map[string]any{
		"strategy": strategy, "result": t, "checkpoint_ms": t.checkpointing, "pause_ms": t.pauses, "rollback_ms": t.backs,
	})
}

// sum fills in what samples tell.
func (t *Trajectory) sum() {
	t.Steps = round(t.Steps)
	t.Overhead = round((t.Total - t.Steps) / t.Steps * 100)
	for _, f := range []struct {
		to      *float64
		samples []float64
		p       float64
	}{
		{&t.Checkpoint, t.checkpointing, 0.5}, {&t.Checkpoint95, t.checkpointing, 0.95}, {&t.Pause, t.pauses, 0.5},
		{&t.StoredPages, t.pages, 0.5}, {&t.Back, t.backs, 0.5}, {&t.Back95, t.backs, 0.95},
	} {
		if v := stats.Percentile(f.samples, f.p); !math.IsNaN(v) {
			*f.to = round(v)
		}
	}
}

// begin makes a sandbox with the repository as it is at the root. It is made with the
// strategy's tracker: dirty rings cannot be had later.
func (s *search) begin(ctx context.Context) (err error) {
	if s.sandbox, err = s.r.create(ctx, api.SandboxRequest{Image: imagePython, Tracker: s.t.Tracker}); err != nil {
		return err
	}
	cell, err := placeRepository()
	if err == nil {
		_, err = s.r.cell(ctx, s.sandbox, cell)
	}
	if err != nil {
		return errors.Join(err, s.r.remove(ctx, s.sandbox))
	}
	return nil
}

// expand makes a node, and saves it if the policy says so.
func (s *search) expand(ctx context.Context, node int) error {
	begin := time.Now()
	if err := s.step(ctx, node); err != nil {
		return err
	}
	s.t.Steps += ms(time.Since(begin))
	s.since[node] = s.since[s.plan.parent[node]] + 1
	// Pages and bytes that changed are known only by a checkpoint.
	if s.policy.Checkpoint(policy.Step{N: node, Since: s.since[node], Pages: -1, DiskBytes: -1}) {
		return s.checkpoint(ctx, node)
	}
	return s.records.Write(policy.Record{Time: time.Now().UTC(), Machine: s.sandbox.ID, Policy: s.t.Policy, Step: node})
}

func (s *search) step(ctx context.Context, node int) error {
	return s.r.step(ctx, s.sandbox, s.run, node, repositoryTests+len(s.plan.path(0, node)))
}

// checkpoint saves a node.
func (s *search) checkpoint(ctx context.Context, node int) error {
	begin := time.Now()
	c, err := s.r.client.Checkpoint(ctx, s.sandbox.ID, api.CheckpointRequest{Tracker: s.t.Tracker})
	if err != nil {
		return err
	}
	took, rec := time.Since(begin), c.Record
	s.saved[node], s.since[node] = c.Snapshot.ID, 0
	s.t.Checkpoints++
	s.t.checkpointing = append(s.t.checkpointing, ms(took))
	s.t.pauses, s.t.pages = append(s.t.pauses, rec.PauseMS), append(s.t.pages, float64(rec.Pages))
	return s.records.Write(policy.Record{
		Time: time.Now().UTC(), Machine: s.sandbox.ID, Policy: s.t.Policy, Step: node, Taken: true, Snapshot: c.Snapshot.ID, Parent: rec.Parent,
		Depth: rec.Depth, Tracker: rec.Tracker, Dirty: rec.Candidates, Stored: rec.Pages, Zero: rec.ZeroPages, Duplicate: rec.SamePages,
		DiskBytes: rec.DiskBytes, Bytes: rec.Bytes, FreezeMS: rec.FreezeMS, PauseMS: rec.PauseMS, CopyMS: rec.CopyAheadMS,
	})
}

// back makes an earlier node the current one: the last one above it that was saved is put
// back, and what came after that is done again.
func (s *search) back(ctx context.Context, node int) error {
	begin := time.Now()
	from := node
	for s.saved[from] == "" && from != 0 {
		from = s.plan.parent[from]
	}
	var err error
	if id := s.saved[from]; id != "" {
		_, err = s.r.client.Rollback(ctx, s.sandbox.ID, id)
	} else if err = s.r.remove(ctx, s.sandbox); err == nil {
		err = s.begin(ctx)
	}
	if err != nil {
		return err
	}
	s.t.backs = append(s.t.backs, ms(time.Since(begin)))
	for _, n := range s.plan.path(from, node) {
		if err := s.step(ctx, n); err != nil {
			return err
		}
		s.t.Replayed++
	}
	return nil
}

// TrajectoryHead is the table's first line.
func TrajectoryHead() string {
	return fmt.Sprintf("%-26s %8s %9s %9s %5s %14s %9s %8s %14s %8s %8s", "strategy", "total s", "steps s", "overhead", "saved",
		"checkpoint ms", "pause ms", "pages", "rollback ms", "again", "MiB")
}

// Text is the trajectory as a row for people.
func (t Trajectory) Text() string {
	if t.Error != "" {
		return fmt.Sprintf("%-26s not measured: %s", t.Strategy, t.Error)
	}
	pair := func(p50, p95 float64) string { return fmt.Sprintf("%.2f, %.2f", p50, p95) }
	return fmt.Sprintf("%-26s %8.2f %9.2f %8.1f%% %5d %14s %9.2f %8.0f %14s %8d %8.1f", t.Strategy, t.Total/1000, t.Steps/1000, t.Overhead, t.Checkpoints,
		pair(t.Checkpoint, t.Checkpoint95), t.Pause, t.StoredPages, pair(t.Back, t.Back95), t.Replayed, float64(t.Bytes)/mib)
}
