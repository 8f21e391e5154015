// Package launch makes the machines that jobs run in: it opens what a machine
// boots from, makes its memory, disk, socket, cgroup and user id, starts the
// jailed thaw-vmm with them, and waits until the guest's agent is ready.
//
//	step            given back by Close, in reverse order
//	slot            user id of the machine
//	directory       journal entry: from here a later daemon can clean up
//	cgroup          killed and removed
//	memfd, disk     closed; both have no name
//	vsock socket    gone with the directory
//	thaw-vmm        killed and reaped
package launch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/assets"
	"thaw/broker/journal"
	"thaw/internal/hostinfo"
	"thaw/vmm"
)

// Config is what all machines of a daemon share.
type Config struct {
	VMM          string // path of thaw-vmm
	Assets       *assets.Set
	Journal      *journal.Journal
	Host         hostinfo.Info
	Dev          bool
	ReadyTimeout time.Duration // from the start of thaw-vmm to the agent's ready message
	Log          *slog.Logger
}

// guestCID is the context id of every guest: each has a vsock device of its own.
const guestCID = 3

// consoleBytes is how much of a guest's console is kept.
const consoleBytes = 64 << 10

// User ids of machines. Nothing else on a host has ids in this range: it lies
// above what systemd gives to containers and below 2³¹.
const (
	firstUID = 1_900_000_000
	maxSlots = 4096
)

// Launcher implements broker.Launcher.
type Launcher struct {
	cfg Config

	mu    sync.Mutex
	slots map[uint32]bool // protected by mu; user ids in use
}

// New makes a launcher.
func New(cfg Config) *Launcher {
	if cfg.ReadyTimeout == 0 {
		cfg.ReadyTimeout = 30 * time.Second
	}
	return &Launcher{cfg: cfg, slots: map[uint32]bool{}}
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

func (l *Launcher) takeSlot() (uint32, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid := uint32(firstUID); uid < firstUID+maxSlots; uid++ {
		if !l.slots[uid] {
			l.slots[uid] = true
			return uid, nil
		}
	}
	return 0, fmt.Errorf("launch: all %d machine slots are taken", maxSlots)
}

func (l *Launcher) freeSlot(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.slots, uid)
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
