package broker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/ahead"
	"thaw/broker/catalogue"
	"thaw/broker/inputs"
)

// Broker is the daemon's core. It is safe for concurrent use.
type Broker struct {
	cfg    Config
	inputs *inputs.Store
	pool   *admission.Pool
	most   api.Limits

	snapshots *catalogue.Catalogue // nil without a fleet
	templates *ahead.Maker[templateKey]

	running sync.WaitGroup // one for each unfinished job, sandbox and checkpoint

	mu           sync.Mutex
	jobs         map[string]*job // protected by mu, as is the rest
	order        []*job          // as submitted
	sandboxes    map[string]*sandbox
	sandboxOrder []*sandbox     // as made
	making       map[string]int // sandboxes of a tenant that are being made
	stopping     bool
}

// New makes a broker. What an earlier one left in the state directory is removed.
func New(cfg Config) (*Broker, error) {
	cfg.setDefaults()
	jobs := filepath.Join(cfg.StateDir, "jobs")
	if err := os.RemoveAll(jobs); err != nil {
		return nil, fmt.Errorf("broker: empty state directory: %w", err)
	}
	if err := os.MkdirAll(jobs, 0o700); err != nil {
		return nil, fmt.Errorf("broker: make state directory: %w", err)
	}
	store, err := inputs.Open(filepath.Join(cfg.StateDir, "inputs"), inputs.Options{
		MaxBytes: cfg.InputBytes, MaxTenantBytes: cfg.TenantInputBytes, MaxTenantFiles: cfg.TenantInputs, TTL: cfg.InputTTL,
	})
	if err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	if cfg.Capacity == (admission.Need{}) {
		if cfg.Capacity, err = HostCapacity(cfg.StateDir); err != nil {
			return nil, err
		}
	}
	b := &Broker{
		cfg: cfg, inputs: store, most: maxLimits(cfg.Capacity), jobs: map[string]*job{},
		sandboxes: map[string]*sandbox{}, making: map[string]int{},
		pool: admission.New(admission.Options{Capacity: cfg.Capacity, MaxQueue: cfg.MaxQueue, TenantMachines: int64(cfg.TenantMachines)}),
	}
	if cfg.Fleet != nil {
		b.snapshots = catalogue.New(catalogue.Options{
			Store: cfg.Fleet.Snapshots(), MaxSnapshots: cfg.TenantSnapshots, MaxBytes: cfg.TenantSnapshotBytes,
			Sandboxes: b.sandboxesBySnapshot, Go: b.running.Go, Log: cfg.Log,
		})
	}
	b.templates = ahead.New(ahead.Options[templateKey]{
		Make: func(ctx context.Context, k templateKey) (string, error) {
			return cfg.Fleet.Template(ctx, k.image, k.class)
		},
		Go: b.running.Go, Retry: templateRetry,
	})
	return b, nil
}

// enter counts something that Shutdown must wait for, until running.Done.
func (b *Broker) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return api.Errorf(api.CodeShuttingDown, "the daemon is stopping")
	}
	b.running.Add(1)
	return nil
}

// Shutdown refuses new jobs and sandboxes, ends all others (code daemon_stopping) and
// waits for their machines to be gone and their snapshots to be durable. The fleet is
// the caller's to close, afterwards.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	b.stopping = true
	jobs := append([]*job(nil), b.order...)
	sandboxes := append([]*sandbox(nil), b.sandboxOrder...)
	b.mu.Unlock()
	b.templates.Close()
	reason := api.Errorf(api.CodeDaemonStopping, "the daemon was told to stop")
	for _, j := range jobs {
		j.decide(api.StateFailed, reason)
	}
	for _, s := range sandboxes {
		s.stop(reason)
	}
	b.inputs.Close()
	done := make(chan struct{})
	go func() { b.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("broker: shut down: machines still end: %w", context.Cause(ctx))
	}
}
