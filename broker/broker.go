package broker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/inputs"
)

// Broker is the daemon's core. It is safe for concurrent use.
type Broker struct {
	cfg    Config
	inputs *inputs.Store
	pool   *admission.Pool
	most   api.Limits

	running sync.WaitGroup // one for each unfinished job

	mu       sync.Mutex
	jobs     map[string]*job // protected by mu, as is the rest
	order    []*job          // as submitted
	stopping bool
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
	return &Broker{
		cfg: cfg, inputs: store, most: maxLimits(cfg.Capacity), jobs: map[string]*job{},
		pool: admission.New(admission.Options{Capacity: cfg.Capacity, MaxQueue: cfg.MaxQueue, TenantMachines: int64(cfg.TenantMachines)}),
	}, nil
}

// Shutdown refuses new jobs, ends all others as failed (code daemon_stopping) and
// waits for their machines to be gone.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	b.stopping = true
	jobs := append([]*job(nil), b.order...)
	b.mu.Unlock()
	for _, j := range jobs {
		j.decide(api.StateFailed, api.Errorf(api.CodeDaemonStopping, "the daemon was told to stop"))
	}
	b.inputs.Close()
	done := make(chan struct{})
	go func() { b.running.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("broker: shut down: jobs still end: %w", context.Cause(ctx))
	}
}
