// Package boot makes machines by booting them: it opens what a machine boots from,
// makes its memory and disk, starts the jailed thaw-vmm with them at a berth of its
// own, and waits until the guest's agent is ready.
//
//	step            given back by Close, in reverse order
//	berth           see package berth
//	memfd, disk     closed; both have no name
//	thaw-vmm        killed and reaped
package boot

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"thaw/api"
	"thaw/broker/assets"
	"thaw/broker/berth"
	"thaw/internal/hostinfo"
	"thaw/vmm"
)

// Config is what all machines of a daemon share.
type Config struct {
	VMM          string // path of thaw-vmm
	Assets       *assets.Set
	Yard         *berth.Yard
	Host         hostinfo.Info
	Dev          bool
	ReadyTimeout time.Duration // from the start of thaw-vmm to the agent's ready message; 0: 30 s
	Log          *slog.Logger
}

// Spec says what machine is wanted.
type Spec struct {
	ID        string // a file name
	Image     string // name of an image
	VCPUs     int
	MemoryMiB int64 // of the machine
	DiskBytes int64 // of the writable disk
	// Memory and Disk are the machine's memory, a memfd, and the top of its writable
	// disk, where the caller wants to keep them. They stay the caller's; nil: made.
	Memory, Disk *os.File
}

// ConsoleBytes is how much of a guest's console is kept.
const ConsoleBytes = 64 << 10

// Booter boots machines.
type Booter struct {
	cfg Config
}

// New makes a booter.
func New(cfg Config) *Booter {
	if cfg.ReadyTimeout == 0 {
		cfg.ReadyTimeout = 30 * time.Second
	}
	return &Booter{cfg: cfg}
}

// Boot starts a machine and returns once its agent is ready. The error is an
// *api.Error, or ctx's; nothing is left behind then.
func (b *Booter) Boot(ctx context.Context, spec Spec) (*Machine, error) {
	m := &Machine{booter: b, spec: spec, ended: make(chan struct{}), ready: make(chan struct{})}
	if err := m.start(ctx); err != nil {
		err = explain(err)
		if cerr := m.Close(context.WithoutCancel(ctx)); cerr != nil {
			b.cfg.Log.Error("failed start left something behind", "machine", spec.ID, "error", cerr)
		}
		return nil, err
	}
	return m, nil
}

// explain gives every failure of a start its code.
func explain(err error) error {
	var e *api.Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	return api.Errorf(api.CodeMaterialise, "the machine could not be made").WithCause(err)
}

// cmdline is the guest kernel's command line.
func (b *Booter) cmdline() (string, error) {
	modules, err := b.cfg.Assets.Modules()
	if err != nil {
		return "", err
	}
	extra := []string{"thaw.role=job"}
	if len(modules) > 0 {
		extra = append(extra, "thaw.modules="+strings.Join(modules, ","))
	}
	return vmm.Cmdline(b.cfg.Host.Kind == hostinfo.PVM, extra...), nil
}

// closeAll closes files that were only to be handed over.
func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
