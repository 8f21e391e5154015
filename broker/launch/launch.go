// Package launch makes the machines that jobs run in by booting them: it opens what a
// machine boots from, makes its memory and disk, starts the jailed thaw-vmm with them
// at a berth of its own, and waits until the guest's agent is ready.
//
//	step            given back by Close, in reverse order
//	berth           see package berth
//	memfd, disk     closed; both have no name
//	thaw-vmm        killed and reaped
package launch

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"thaw/api"
	"thaw/broker"
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
	ReadyTimeout time.Duration // from the start of thaw-vmm to the agent's ready message
	Log          *slog.Logger
}

// consoleBytes is how much of a guest's console is kept.
const consoleBytes = 64 << 10

// Launcher implements broker.Launcher.
type Launcher struct {
	cfg Config
}

// New makes a launcher.
func New(cfg Config) *Launcher {
	if cfg.ReadyTimeout == 0 {
		cfg.ReadyTimeout = 30 * time.Second
	}
	return &Launcher{cfg: cfg}
}

// Check implements broker.Launcher.
func (l *Launcher) Check(image string) error {
	kernel, err := l.cfg.Assets.Kernel()
	if err != nil {
		return err
	}
	kernel.Close()
	f, err := l.cfg.Assets.Image(image)
	if err != nil {
		return err
	}
	return f.Close()
}

// Assets implements broker.Launcher.
func (l *Launcher) Assets(images []string) (api.Asset, map[string]api.Asset) {
	return l.cfg.Assets.Describe(images)
}

// Launch implements broker.Launcher.
func (l *Launcher) Launch(ctx context.Context, spec broker.LaunchSpec) (broker.Machine, error) {
	m := &machine{launcher: l, spec: spec, ended: make(chan struct{}), ready: make(chan struct{})}
	if err := m.start(ctx); err != nil {
		err = explain(err)
		if cerr := m.Close(context.WithoutCancel(ctx)); cerr != nil {
			l.cfg.Log.Error("failed start left something behind", "machine", spec.ID, "error", cerr)
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
func (l *Launcher) cmdline() (string, error) {
	modules, err := l.cfg.Assets.Modules()
	if err != nil {
		return "", err
	}
	extra := []string{"thaw.role=job"}
	if len(modules) > 0 {
		extra = append(extra, "thaw.modules="+strings.Join(modules, ","))
	}
	return vmm.Cmdline(l.cfg.Host.Kind == hostinfo.PVM, extra...), nil
}

// closeAll closes files that were only to be handed over.
func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
