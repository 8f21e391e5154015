// Package fleet makes machines out of snapshots: it builds templates, keeps shells
// ready, restores, checkpoints, rolls back and forks.
//
//	image ──Template──▶ template ──Restore──▶ machine ──Checkpoint──▶ checkpoint
//	                        ▲                  │  ▲                       │
//	                        └────Rollback──────┘  └──Restore, Fork────────┘
//
// A restored machine is taken from a shell: a jailed thaw-vmm with all of its KVM
// objects made ahead. There are three kinds, named in every record:
//
//	generic     of a class; can become any snapshot of it
//	bound       a template is laid over it; it has never run
//	rehearsed   bound, run once and rolled back: its page tables are hot
//
// A machine is handed out only when its guest has acknowledged its generation; one
// that does not in time is destroyed. After a tenant has had it, a shell is
// destroyed too.
package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"thaw/broker/assets"
	"thaw/broker/berth"
	"thaw/broker/boot"
	"thaw/broker/fleet/digest"
	"thaw/broker/fleet/pool"
	"thaw/broker/fleet/tops"
	"thaw/internal/hostinfo"
	"thaw/snapshot/hot"
	"thaw/snapshot/store"
)

// Class is a size of machines. Shells and templates are made per class.
type Class = pool.Class

// Kind is what a shell was when a restore took it.
type Kind = pool.Kind

// Kinds of shells.
const (
	Generic   = pool.Generic
	Bound     = pool.Bound
	Rehearsed = pool.Rehearsed
)

// Pool says how many shells are kept ready.
type Pool struct {
	Generic   int // of each class in use; 0: 2, negative: none
	Bound     int // of each template in use; 0: none
	Rehearsed int // of each template in use; 0: 1, negative: none
	// Idle is how long no machine may have been asked for before shells are
	// rehearsed; 0: 50 ms.
	Idle time.Duration
}

// Config is what a fleet works with.
type Config struct {
	VMM    string // path of thaw-vmm
	Init   string // path of thaw-init, which templates depend on
	Assets *assets.Set
	Yard   *berth.Yard
	Store  *store.Store
	Host   hostinfo.Info
	Dev    bool // the host may lack cgroup v2
	Pool   Pool

	HotBytes      int64         // of snapshots' memory that stay in memory; 0: 4 GiB
	DiskBytes     int64         // of the writable disk; 0: 1 GiB
	ReadyTimeout  time.Duration // of a template's boot; 0: 30 s
	AckTimeout    time.Duration // from when a machine runs to its acknowledgement; 0: 2 s
	FreezeTimeout time.Duration // of a checkpoint; 0: 2 s
	Log           *slog.Logger
	// Observe is given every record, if it is not nil. It must not block.
	Observe func(Record)
}

// Errors that callers tell apart.
var (
	// ErrNotAcknowledged says that a guest did not acknowledge its generation in time:
	// it may share secrets with another, and has been destroyed.
	ErrNotAcknowledged = errors.New("guest did not acknowledge its generation")
	// ErrNotFrozen says that the processes of a guest did not stand still in time: there is
	// no checkpoint, and they go on.
	ErrNotFrozen = errors.New("guest could not be frozen")
	// ErrEnded says that the machine has ended, or is closed.
	ErrEnded = errors.New("machine has ended")
	// ErrPaused says that a machine must run for what was asked.
	ErrPaused = errors.New("machine is paused")
	// ErrUnrelated says that a machine cannot be rolled back to a snapshot because it
	// was made of another template.
	ErrUnrelated = errors.New("snapshot is of another template")
	// ErrTooDeep says that a chain of checkpoints has as many layers of disk as a machine
	// can have: merge it, or roll back.
	ErrTooDeep = errors.New("chain of checkpoints is too long")
	// ErrClosed says that the fleet is closed.
	ErrClosed = errors.New("fleet is closed")
)

// Fleet has the shells, templates and machines of a daemon. It is safe for several
// goroutines.
type Fleet struct {
	cfg        Config
	kvm        *os.File
	cpu        string // digest of what KVM offers
	digests    digest.Files
	booter     *boot.Booter
	generation atomic.Uint64
	hot        *hot.Cache
	images     *images
	tops       *tops.Tops
	pool       *pool.Pool[*shell]

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup // goroutines of the fleet's own

	mu        sync.Mutex
	closed    bool                 // protected by mu
	machines  map[*Machine]bool    // protected by mu
	templates map[string]*building // protected by mu; by key
}

// New returns a fleet. Shells are made when their class is first used.
func New(cfg Config) (*Fleet, error) {
	setDefaults(&cfg)
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("fleet: open KVM: %w", err)
	}
	cpu, err := digest.CPU(kvm)
	if err != nil {
		kvm.Close()
		return nil, err
	}
	f := &Fleet{cfg: cfg, kvm: kvm, cpu: cpu, tops: tops.New(cfg.Yard.Dir()), machines: map[*Machine]bool{}, templates: map[string]*building{}}
	f.booter = boot.New(boot.Config{
		VMM: cfg.VMM, Assets: cfg.Assets, Yard: cfg.Yard, Host: cfg.Host, Dev: cfg.Dev, ReadyTimeout: cfg.ReadyTimeout, Log: cfg.Log,
	})
	// Above all numbers that daemons before this one gave, which counted up from
	// their own start by less than one a microsecond.
	f.generation.Store(uint64(time.Now().UnixMicro()))
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.hot = hot.New(cfg.HotBytes)
	f.images = newImages(f)
	f.pool = f.newPool()
	return f, nil
}

func setDefaults(c *Config) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(Record) {}
	}
	if c.HotBytes == 0 {
		c.HotBytes = 4 << 30
	}
	if c.DiskBytes == 0 {
		c.DiskBytes = 1 << 30
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&c.ReadyTimeout, 30 * time.Second},
		{&c.AckTimeout, 2 * time.Second},
		{&c.FreezeTimeout, 2 * time.Second},
		{&c.Pool.Idle, 50 * time.Millisecond},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
	c.Pool.Generic = max(0, cmp.Or(c.Pool.Generic, 2))
	c.Pool.Bound = max(0, c.Pool.Bound)
	c.Pool.Rehearsed = max(0, cmp.Or(c.Pool.Rehearsed, 1))
}

// Close destroys all machines and shells, waits for checkpoints that are being
// written, and gives up everything. ctx bounds the wait.
func (f *Fleet) Close(ctx context.Context) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	machines := make([]*Machine, 0, len(f.machines))
	for m := range f.machines {
		machines = append(machines, m)
	}
	f.mu.Unlock()
	f.stop()
	errs := make([]error, len(machines))
	var closing sync.WaitGroup
	for i, m := range machines {
		closing.Go(func() { errs[i] = m.Close(ctx) })
	}
	closing.Wait()
	f.closePool()
	done := make(chan struct{})
	go func() { f.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("fleet: wait for work under way: %w", context.Cause(ctx)))
		return errors.Join(errs...)
	}
	f.images.close()
	f.hot.Close()
	return errors.Join(append(errs, f.tops.Close(), f.kvm.Close())...)
}

// spawn runs do in a goroutine that Close waits for; on a closed fleet it runs it at
// once.
func (f *Fleet) spawn(do func()) {
	f.mu.Lock()
	closed := f.closed
	if !closed {
		f.work.Go(do)
	}
	f.mu.Unlock()
	if closed {
		do()
	}
}

// forks bounds how many machines are restored at a time by one Fork. More than there are
// CPUs, because each waits now and then: to be born, for its guest's answer, or for the
// kernel. On a pvm host with three for each of two CPUs a tenth of their time was idle,
// with six or ten a twentieth.
func forks() int { return 8 * runtime.NumCPU() }

// randomName makes a name that nobody guesses.
func randomName(prefix string) string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return prefix + hex.EncodeToString(b[:])
}
