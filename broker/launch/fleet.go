package launch

import (
	"context"
	"errors"
	"fmt"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/assets"
	"thaw/broker/catalogue"
	"thaw/broker/fleet"
	"thaw/broker/fleet/tracker"
	"thaw/snapshot/store"
	"thaw/vmm/dirty"
)

// classes are the sizes of templates, in the order of memory, then of vCPUs.
var classes = func() (all []broker.Class) {
	for _, memory := range []int64{256, 512, 1024, 4096} {
		for _, vcpus := range []int{1, 2, 4} {
			all = append(all, broker.Class{MemoryMiB: memory, VCPUs: vcpus})
		}
	}
	return all
}()

// Fleet implements broker.Fleet.
type Fleet struct {
	fleet     *fleet.Fleet
	store     *store.Store
	assets    *assets.Set
	diskBytes int64
}

// NewFleet gives the broker a fleet, the store that it works on, and the images; its
// templates have writable disks of diskBytes.
func NewFleet(f *fleet.Fleet, s *store.Store, a *assets.Set, diskBytes int64) *Fleet {
	return &Fleet{f, s, a, diskBytes}
}

// Classes implements broker.Fleet.
func (f *Fleet) Classes() []broker.Class { return classes }

// DiskBytes implements broker.Fleet.
func (f *Fleet) DiskBytes() int64 { return f.diskBytes }

// Template implements broker.Fleet.
func (f *Fleet) Template(ctx context.Context, image string, c broker.Class) (string, error) {
	id, err := f.fleet.Template(ctx, image, fleet.Class{MemoryMiB: c.MemoryMiB, VCPUs: c.VCPUs})
	if err != nil {
		return "", snapshotError(err, api.CodeTemplateFailed, "the template of image %s could not be made", image)
	}
	return id, nil
}

// Restore implements broker.Fleet.
func (f *Fleet) Restore(ctx context.Context, spec broker.RestoreSpec) (broker.WarmMachine, error) {
	m, err := f.fleet.Restore(ctx, restoreSpec(spec))
	if err != nil {
		return nil, snapshotError(err, api.CodeRestoreFailed, "no machine could be made of snapshot %s", spec.Snapshot)
	}
	return f.wrap(m, spec, "create")
}

// Fork implements broker.Fleet.
func (f *Fleet) Fork(ctx context.Context, snapshot string, specs []broker.RestoreSpec) ([]broker.WarmMachine, error) {
	wanted := make([]fleet.RestoreSpec, 0, len(specs))
	for _, s := range specs {
		wanted = append(wanted, restoreSpec(s))
	}
	made, err := f.fleet.Fork(ctx, snapshot, wanted)
	if err != nil {
		return nil, snapshotError(err, api.CodeRestoreFailed, "%d machines could not be made of snapshot %s", len(specs), snapshot)
	}
	var errs []error
	out := make([]broker.WarmMachine, 0, len(made))
	for i, m := range made {
		w, err := f.wrap(m, specs[i], "fork")
		errs = append(errs, err)
		out = append(out, w)
	}
	if err := errors.Join(errs...); err != nil {
		for _, m := range made {
			err = errors.Join(err, m.Close(context.WithoutCancel(ctx)))
		}
		return nil, err
	}
	return out, nil
}

// Shells implements broker.Fleet.
func (f *Fleet) Shells() []api.ShellCount {
	list := []api.ShellCount{}
	for _, s := range f.fleet.Shells() {
		list = append(list, api.ShellCount{
			MachineClass: api.MachineClass{MemoryMiB: s.Class.MemoryMiB, VCPUs: s.Class.VCPUs},
			Shell:        api.Shell(s.Kind), Snapshot: s.Template, Ready: s.Ready, Wanted: s.Wanted,
		})
	}
	return list
}

// Trackers implements broker.Fleet.
func (f *Fleet) Trackers() []api.Tracker {
	var list []api.Tracker
	for _, a := range tracker.Host() {
		t := api.Tracker{Name: string(a.Tracker), About: a.About, OK: a.Err == nil}
		if a.Err != nil {
			t.Error = a.Err.Error()
		}
		list = append(list, t)
	}
	return list
}

// Snapshots implements broker.Fleet.
func (f *Fleet) Snapshots() catalogue.Store { return stored{f.store, f.fleet} }

func restoreSpec(s broker.RestoreSpec) fleet.RestoreSpec {
	return fleet.RestoreSpec{MachineID: s.ID, Snapshot: s.Snapshot, Hostname: s.ID, Shell: fleet.Kind(s.Shell), Job: s.Job, Tracker: s.Tracker}
}

// wrap makes the broker's machine of the fleet's. After an error the machine is gone,
// unless others were made with it.
func (f *Fleet) wrap(m *fleet.Machine, spec broker.RestoreSpec, op string) (broker.WarmMachine, error) {
	image := ""
	if s, err := f.store.Get(spec.Snapshot); err == nil {
		image = s.Labels[labelImage]
	}
	var env []string
	if image != "" {
		var err error
		if env, err = f.assets.Env(image); err != nil {
			return nil, errors.Join(snapshotError(err, api.CodeRestoreFailed, "the image's environment is not known"), m.Close(context.Background()))
		}
	}
	return &restored{Machine: m, tenant: spec.Tenant, op: op, env: env}, nil
}

// snapshotError gives a failure of the fleet or the store its code, or the one given.
func snapshotError(err error, code api.Code, format string, args ...any) error {
	var e *api.Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	remedy := ""
	for _, known := range []struct {
		is     error
		code   api.Code
		remedy string
	}{
		{fleet.ErrNotAcknowledged, api.CodeNotAcknowledged, "restore it again; if that fails too, the guest is broken: go back to an earlier snapshot"},
		{fleet.ErrNotFrozen, api.CodeFreezeTimeout, "try again when less is being written to disks, or end what cannot be stopped"},
		{fleet.ErrUnrelated, api.CodeSnapshotIncompatible, "make a sandbox of it: `thaw sandbox create --snapshot`"},
		{dirty.ErrTracker, api.CodeRequestInvalid, "`thaw info` lists the trackers of this host; dirty-ring is for sandboxes that were created with it"},
		{fleet.ErrPaused, api.CodeSandboxState, "resume the sandbox first"},
		{fleet.ErrClosed, api.CodeShuttingDown, ""},
		{store.ErrNotFound, api.CodeSnapshotNotFound, "`thaw snapshot ls` lists your snapshots"},
		{store.ErrInUse, api.CodeSnapshotInUse, "remove the sandboxes that are made from it (`thaw snapshot tree`), or its pin"},
		{store.ErrChildren, api.CodeSnapshotChildren, "remove those first, or all together with --cascade"},
		{store.ErrIncompatible, api.CodeSnapshotIncompatible, "use it where it was made; machines are never restored on what they were not made on"},
		{store.ErrParentMissing, api.CodeSnapshotDamaged, "remove it: what it was made on is gone"},
		{store.ErrCycle, api.CodeSnapshotDamaged, "remove it"},
		{store.ErrDamaged, api.CodeSnapshotDamaged, "remove it, and look at the host's disk"},
		{store.ErrNoSpace, api.CodeNoSpace, "make room: `thaw snapshot gc`, `thaw snapshot rm`"},
		{store.ErrArchive, api.CodeSnapshotInvalid, "export it again"},
		{store.ErrInvalid, api.CodeSnapshotInvalid, ""},
	} {
		if errors.Is(err, known.is) {
			code, remedy = known.code, known.remedy
			break
		}
	}
	e = api.Errorf(code, format, args...).WithCause(err)
	if remedy != "" {
		e = e.WithRemedy("%s", remedy)
	}
	return e
}

// noInterpreter is the error of a machine without a warm interpreter.
func noInterpreter(runtime string) error {
	return api.Errorf(api.CodeNoInterpreter, "no %s interpreter waits in this sandbox", runtime).
		WithCause(fmt.Errorf("its image has none, or a cell has ended it")).WithRemedy("name another runtime, or roll the sandbox back")
}
