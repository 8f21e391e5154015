package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/fleet"
	"thaw/broker/fold"
	"thaw/broker/launch"
	"thaw/internal/hostinfo"
	"thaw/snapshot/store"
)

const (
	// templateDisk is the writable disk of templates, in bytes: the size that jobs get
	// unless they ask for another.
	templateDisk = 1 << 30
	// minFree is what snapshots leave free on their file system, in bytes.
	minFree = 1 << 30
	// Snapshots are collected above highPercent of their share, down to lowPercent.
	highPercent, lowPercent = 90, 80
	collectEvery            = time.Minute
	fleetEnd                = 30 * time.Second
	// labGuestTimeout is how long a guest may take to freeze or to acknowledge its
	// generation in the lab, whose CPU is emulated.
	labGuestTimeout = 30 * time.Second
)

// templates is what a daemon has to restore machines from; nil when it boots each.
type templates struct {
	fleet  *fleet.Fleet
	store  *store.Store
	broker *launch.Fleet
	share  int64 // of the disk, in bytes
	log    *slog.Logger

	collecting sync.WaitGroup
}

// openTemplates opens the store of snapshots and the fleet on it.
func openTemplates(o options, c launch.Config) (*templates, error) {
	switch o.templates {
	case "off":
		return nil, nil
	case "on":
	default:
		return nil, api.Errorf(api.CodeBadRequest, "--templates cannot be %q", o.templates).WithRemedy("on or off")
	}
	t := &templates{share: o.snapshotBytes, log: c.Log}
	root := filepath.Join(o.stateDir, "snapshots")
	if t.share == 0 {
		var fs unix.Statfs_t
		if err := unix.Statfs(o.stateDir, &fs); err != nil {
			return nil, fmt.Errorf("thawd: free space of %s: %w", o.stateDir, err)
		}
		t.share = int64(fs.Bavail) * fs.Bsize / 2
	}
	var err error
	t.store, err = store.Open(store.Options{Root: root, MaxBytes: t.share, MinFree: minFree, Folder: fold.Disks{}})
	if errors.Is(err, store.ErrLocked) {
		return nil, api.Errorf(api.CodeStateInUse, "another daemon uses %s", root).WithRemedy("stop it, or choose another with --state-dir")
	}
	if err != nil {
		return nil, err
	}
	for _, p := range t.store.Problems() {
		c.Log.Warn("snapshot cannot be used", "snapshot", p.ID, "error", p.Err)
	}
	var guest time.Duration // the fleet's choice
	if c.Host.Kind == hostinfo.Lab {
		guest = labGuestTimeout
	}
	t.fleet, err = fleet.New(fleet.Config{
		AckTimeout: guest, FreezeTimeout: guest,
		VMM: c.VMM, Init: filepath.Join(o.bin, "thaw-init"), Assets: c.Assets, Yard: c.Yard, Store: t.store, Host: c.Host, Dev: c.Dev,
		Pool: pool(o), DiskBytes: templateDisk, ReadyTimeout: c.ReadyTimeout, Log: c.Log,
	})
	if err != nil {
		t.store.Close()
		return nil, err
	}
	t.broker = launch.NewFleet(t.fleet, t.store, c.Assets, templateDisk)
	return t, nil
}

// pool says how many shells are kept ready.
func pool(o options) fleet.Pool {
	atLeast := func(n int) int {
		if n == 0 {
			return -1 // none: 0 is the fleet's choice
		}
		return n
	}
	return fleet.Pool{Generic: atLeast(o.genericShells), Bound: o.boundShells, Rehearsed: atLeast(o.rehearsedShells)}
}

// forBroker is the fleet as the broker sees it.
func (t *templates) forBroker() broker.Fleet {
	if t == nil {
		return nil
	}
	return t.broker
}

// start keeps the store within its share until ctx ends.
func (t *templates) start(ctx context.Context) {
	if t != nil {
		t.collecting.Go(func() { t.collect(ctx) })
	}
}

// collect is what start starts. It takes the least recently
// used of what can be made again or has no name; what somebody gave a name stays.
func (t *templates) collect(ctx context.Context) {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		gone, err := t.store.GC(ctx, store.Watermark{High: t.share / 100 * highPercent, Low: t.share / 100 * lowPercent}, func(m *store.Manifest) bool {
			return m.Kind == store.Checkpoint && m.Name != ""
		})
		if len(gone) > 0 || err != nil {
			t.log.Info("collected snapshots", "removed", len(gone), "error", err)
		}
	}
}

// close gives everything up. Machines are gone by then, and start's context has ended.
func (t *templates) close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fleetEnd)
	defer cancel()
	t.collecting.Wait()
	return errors.Join(t.fleet.Close(ctx), t.store.Close())
}
