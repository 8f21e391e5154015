package fleet

import (
	"context"
	"errors"
	"thaw/guestinit/agentclient"
	"thaw/snapshot/store"
	"thaw/vmm/vmmproc"
)

var errSoon = errors.New("fleet: not made yet")

type images struct{}
type pool struct{}
type building struct{}

func newImages(*Fleet) *images { return nil }
func (*images) close()         {}
func newPool(*Fleet) *pool     { return nil }
func (*pool) close()           {}

// Machine is a running machine.
type Machine struct{}

func (f *Fleet) Template(ctx context.Context, image string, c Class) (string, error) {
	return "", errSoon
}
func (f *Fleet) Restore(ctx context.Context, s RestoreSpec) (*Machine, error) { return nil, errSoon }
func (f *Fleet) Fork(ctx context.Context, snapshot string, specs []RestoreSpec) ([]*Machine, error) {
	return nil, errSoon
}
func (c *Checkpoint) Durable(ctx context.Context) (*store.Manifest, error) { return nil, errSoon }
func (m *Machine) ID() string                                              { return "" }
func (m *Machine) Agent() *agentclient.Client                              { return nil }
func (m *Machine) Warm(runtime string) (uint64, bool)                      { return 0, false }
func (m *Machine) Checkpoint(ctx context.Context, s CheckpointSpec) (*Checkpoint, error) {
	return nil, errSoon
}
func (m *Machine) Rollback(ctx context.Context, snapshot string) (Record, error) {
	return Record{}, errSoon
}
func (m *Machine) Fork(ctx context.Context, specs []RestoreSpec) ([]*Machine, *Checkpoint, error) {
	return nil, nil, errSoon
}
func (m *Machine) Pause(ctx context.Context) error  { return errSoon }
func (m *Machine) Resume(ctx context.Context) error { return errSoon }
func (m *Machine) Exited() <-chan struct{}          { return nil }
func (m *Machine) Exit() vmmproc.Exit               { return vmmproc.Exit{} }
func (m *Machine) Record() Record                   { return Record{} }
func (m *Machine) Snapshot() string                 { return "" }
func (m *Machine) Class() Class                     { return Class{} }
func (m *Machine) Close(ctx context.Context) error  { return errSoon }
