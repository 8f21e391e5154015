package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"thaw/api"
	"thaw/broker/catalogue"
	"thaw/broker/steps"
)

// fakeFleet makes fake machines whose memory is one string: a cell adds its source to
// it and prints it, a snapshot keeps it.
type fakeFleet struct {
	launcher    *fakeLauncher
	templateErr error
	slow        chan struct{} // if not nil, a template waits for it
	restoreErr  error
	storing     chan struct{} // if not nil, a checkpoint is durable when it is closed
	storeErr    error
	rollbackErr error

	mu         sync.Mutex
	generation uint64
	memory     map[string]string // by snapshot
	stored     []catalogue.Owned
	machines   []*fakeWarm
	built      int
}

func newFakeFleet() *fakeFleet {
	return &fakeFleet{launcher: &fakeLauncher{}, memory: map[string]string{}}
}

func (f *fakeFleet) Classes() []Class {
	return []Class{{256, 1}, {512, 1}, {512, 2}, {1024, 1}, {1024, 2}}
}
func (f *fakeFleet) DiskBytes() int64 { return 1 << 30 }
func (f *fakeFleet) Shells() []api.ShellCount {
	return []api.ShellCount{{MachineClass: api.MachineClass{MemoryMiB: 512, VCPUs: 1}, Shell: api.ShellGeneric, Ready: 1, Wanted: 2}}
}
func (f *fakeFleet) Trackers() []api.Tracker    { return []api.Tracker{{Name: "full", OK: true}} }
func (f *fakeFleet) Snapshots() catalogue.Store { return f }

func (f *fakeFleet) Template(ctx context.Context, image string, c Class) (string, error) {
	if f.slow != nil {
		select {
		case <-f.slow:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	if f.templateErr != nil {
		return "", f.templateErr
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("%032x", c.MemoryMiB+int64(c.VCPUs))
	if _, ok := f.memory[id]; !ok {
		f.built++
		f.memory[id] = ""
		f.stored = append(f.stored, catalogue.Owned{Snapshot: api.Snapshot{ID: id, Kind: api.KindTemplate, State: api.SnapshotDurable, Image: image, MemoryMiB: c.MemoryMiB, VCPUs: c.VCPUs, Created: time.Now()}})
	}
	return id, nil
}

func (f *fakeFleet) Restore(_ context.Context, spec RestoreSpec) (WarmMachine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	memory, ok := f.memory[spec.Snapshot]
	switch {
	case f.restoreErr != nil:
		return nil, f.restoreErr
	case !ok:
		return nil, api.Errorf(api.CodeSnapshotNotFound, "gone")
	}
	f.generation++
	shell := api.ShellRehearsed
	if spec.Shell != "" {
		shell = spec.Shell
	}
	m := &fakeWarm{
		fakeMachine: &fakeMachine{launcher: f.launcher, ended: make(chan struct{}), puts: map[string]string{}}, fleet: f, spec: spec, memory: memory,
		record: api.Record{Op: "create", Machine: spec.ID, Snapshot: spec.Snapshot, Generation: f.generation, Shell: shell},
	}
	f.machines = append(f.machines, m)
	return m, nil
}

func (f *fakeFleet) Fork(ctx context.Context, snapshot string, specs []RestoreSpec) (made []WarmMachine, err error) {
	for _, s := range specs {
		s.Snapshot = snapshot
		m, err := f.Restore(ctx, s)
		if err != nil {
			return nil, err
		}
		made = append(made, m)
	}
	return made, nil
}

func (f *fakeFleet) List() []catalogue.Owned {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stored)
}

func (f *fakeFleet) Delete(_ context.Context, id string, cascade bool) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var children []string
	for _, s := range f.stored {
		if s.Parent == id {
			children = append(children, s.ID)
		}
	}
	if len(children) > 0 && !cascade {
		return nil, api.Errorf(api.CodeSnapshotChildren, "it has children")
	}
	gone := append([]string{id}, children...)
	f.stored = slices.DeleteFunc(f.stored, func(s catalogue.Owned) bool { return slices.Contains(gone, s.ID) })
	return gone, nil
}

func (f *fakeFleet) Merge(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.ContainsFunc(f.stored, func(s catalogue.Owned) bool { return s.ID == id }) {
		return api.Errorf(api.CodeSnapshotNotFound, "snapshot %s is not in the store", id)
	}
	return nil
}

func (f *fakeFleet) Export(_ context.Context, id string, w io.Writer) error {
	_, err := io.WriteString(w, "archive of "+id)
	return err
}

func (f *fakeFleet) Import(_ context.Context, tenant string, r io.Reader) ([]string, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("%032x", len(b))
	f.stored = append(f.stored, catalogue.Owned{Tenant: tenant, Snapshot: api.Snapshot{ID: id, Kind: api.KindCheckpoint, State: api.SnapshotDurable}})
	return []string{id}, nil
}

type fakeWarm struct {
	*fakeMachine
	fleet *fakeFleet
	spec  RestoreSpec

	mu     sync.Mutex
	record api.Record
	memory string
	paused bool
	hang   chan struct{} // a cell "hang" waits for it, or for its end
}

func (m *fakeWarm) Agent() Agent { return m }
func (m *fakeWarm) Record() api.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record
}

func (m *fakeWarm) Code(ctx context.Context, c Cell, stdout, stderr io.Writer) (CellEnd, error) {
	if c.Runtime != "python" {
		return CellEnd{}, api.Errorf(api.CodeNoInterpreter, "no %s", c.Runtime)
	}
	m.mu.Lock()
	m.memory += c.Source
	memory, hang := m.memory, m.hang
	m.mu.Unlock()
	if strings.HasPrefix(c.Source, "hang") {
		fmt.Fprint(stdout, "hanging")
		select {
		case <-ctx.Done():
			return CellEnd{Status: api.CellInterrupted}, nil
		case <-hang:
			return CellEnd{}, errGone
		case <-m.ended:
			return CellEnd{}, errGone
		}
	}
	fmt.Fprint(stdout, memory)
	if strings.HasPrefix(c.Source, "raise") {
		fmt.Fprint(stderr, "Traceback")
		return CellEnd{Status: api.CellError, ErrorType: "ValueError"}, nil
	}
	return CellEnd{Status: api.CellOK, Value: "42"}, nil
}

// Changed takes each byte that is not in the snapshot for a page.
func (m *fakeWarm) Changed(context.Context) (steps.Change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	return steps.Change{Pages: int64(len(m.memory) - len(m.fleet.memory[m.record.Snapshot]))}, nil
}

func (m *fakeWarm) Checkpoint(_ context.Context, spec CheckpointSpec) (catalogue.Made, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	id := fmt.Sprintf("c%031x", 1<<20+len(f.memory))
	f.memory[id] = m.memory
	c := &fakeCheckpoint{fleet: f, snapshot: catalogue.Owned{Tenant: m.spec.Tenant, Snapshot: api.Snapshot{
		ID: id, Kind: api.KindCheckpoint, State: api.SnapshotDurable, Parent: m.record.Snapshot, Name: spec.Name, Labels: spec.Labels, Bytes: 100, Created: time.Now(),
	}}}
	m.record.Snapshot = id
	return c, nil
}

func (m *fakeWarm) Rollback(_ context.Context, snapshot string) (api.Record, error) {
	if err := m.fleet.rollbackErr; err != nil {
		m.die(MachineExit{Reason: ExitKilled})
		return api.Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fleet.mu.Lock()
	defer m.fleet.mu.Unlock()
	m.fleet.generation++
	m.memory = m.fleet.memory[snapshot]
	m.record = api.Record{Op: "rollback", Snapshot: snapshot, Generation: m.fleet.generation}
	if m.hang != nil {
		close(m.hang)
		m.hang = nil
	}
	return m.record, nil
}

func (m *fakeWarm) Pause(context.Context) error  { m.paused = true; return nil }
func (m *fakeWarm) Resume(context.Context) error { m.paused = false; return nil }

type fakeCheckpoint struct {
	fleet    *fakeFleet
	snapshot catalogue.Owned
}

func (c *fakeCheckpoint) ID() string { return c.snapshot.ID }
func (c *fakeCheckpoint) Record() api.Record {
	return api.Record{Op: "checkpoint", Snapshot: c.snapshot.ID, Parent: c.snapshot.Parent, Bytes: c.snapshot.Bytes}
}

func (c *fakeCheckpoint) Durable(context.Context) error {
	if c.fleet.storing != nil {
		<-c.fleet.storing
	}
	if c.fleet.storeErr != nil {
		return c.fleet.storeErr
	}
	c.fleet.mu.Lock()
	defer c.fleet.mu.Unlock()
	c.fleet.stored = append(c.fleet.stored, c.snapshot)
	return nil
}

var errDiskFull = errors.New("no space left on device")
