package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"thaw/guestinit/agentclient"
	"thaw/vmm/vmmproc"
	"thaw/vmm/vmmproto"
)

// Machine is a running machine. All it says comes from a hostile guest or from the
// VMM process beside it. Operations on it are done one after the other, in no order
// that callers could rely on; Close ends the one under way.
type Machine struct {
	id       string
	fleet    *Fleet
	shell    *shell
	hostname string
	wanted   string // tracker of its checkpoints; empty: the fleet's choice

	op chan struct{} // has one element while an operation is under way

	mu       sync.Mutex
	client   *agentclient.Client // protected by mu; replaced by Rollback
	current  *held               // protected by mu; the snapshot that it was last restored from or saved as
	overlays int                 // protected by mu; that the VMM has
	savedMiB int64               // protected by mu; that the VMM wrote into checkpoints, and is charged for
	paused   bool                // protected by mu
	frozen   bool                // protected by mu; saved while paused: Resume thaws
	record   Record              // protected by mu; of the last restore or rollback
	tracker  string              // that was asked for last; of the operation under way
	tracked  bool                // the VMM follows the guest's writes since a save; of the operation under way
	closed   bool                // protected by mu

	closeOnce sync.Once
	closeErr  error
}

// begin starts an operation, when no other is under way.
func (m *Machine) begin(ctx context.Context) error {
	select {
	case m.op <- struct{}{}:
	case <-m.shell.ended:
		return m.gone()
	case <-ctx.Done():
		return fmt.Errorf("fleet: machine %s: wait for another operation: %w", m.id, context.Cause(ctx))
	}
	if m.isClosed() || !m.shell.alive() {
		m.end()
		return m.gone()
	}
	return nil
}

func (m *Machine) end() { <-m.op }

func (m *Machine) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// generation is the machine's.
func (m *Machine) generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record.Generation
}

// advance makes h what the machine is based on, with all that change does. After an
// error, which says that the machine is closed, h is released and change has not run.
func (m *Machine) advance(h *held, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		h.release()
		return m.gone()
	}
	m.current.release()
	m.current = h
	change()
	return nil
}

// allow lets the VMM use more than the machine's memory, besides what it wrote into
// checkpoints.
func (m *Machine) allow(mib int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shell.berth.AllowMemory(m.savedMiB + mib)
}

// rebase has the VMM use the files of h, which is what it was just saved as, instead
// of one for each checkpoint that it has made.
func (m *Machine) rebase(ctx context.Context, h *held) error {
	m.mu.Lock()
	many := m.overlays > vmmproto.MaxOverlays-4
	m.mu.Unlock()
	if !many {
		return nil
	}
	plan := m.fleet.images.planOf(h.image, "")
	defer plan.release()
	v := h.handOver(plan, nil)
	v.Disks = nil
	if err := m.shell.proc.Rebase(ctx, v); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.overlays = len(h.overlays)
	return nil
}

// gone is the error of a machine that has ended.
func (m *Machine) gone() error {
	select {
	case <-m.shell.ended:
		return fmt.Errorf("fleet: machine %s: %w: %s", m.id, ErrEnded, m.shell.exit)
	default:
		return fmt.Errorf("fleet: machine %s: %w", m.id, ErrEnded)
	}
}

// ID is the machine's name, as it was asked for.
func (m *Machine) ID() string { return m.id }

// Class is the machine's size.
func (m *Machine) Class() Class { return m.shell.class }

// Agent talks to the machine's agent. Rollback ends its connections: ask again then.
func (m *Machine) Agent() *agentclient.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.client
}

// Warm is the exec id of the warm interpreter of a runtime: "python", "node".
func (m *Machine) Warm(runtime string) (execID uint64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	execID, ok = m.current.warm[runtime]
	return execID, ok
}

// Snapshot is the id of the snapshot that the machine was last restored from, rolled
// back to, or saved as.
func (m *Machine) Snapshot() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current.id
}

// Record is that of the last restore or rollback.
func (m *Machine) Record() Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record
}

// Process is the machine's thaw-vmm, for its counters and console.
func (m *Machine) Process() *vmmproc.Process { return m.shell.proc }

// Exited is closed when the machine's process is gone; from then on Exit tells how.
func (m *Machine) Exited() <-chan struct{} { return m.shell.ended }

// Exit is how the process ended.
func (m *Machine) Exit() vmmproc.Exit { return m.shell.exit }

// Pause stops the machine where it stands. Its connections stay, and wait.
func (m *Machine) Pause(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.end()
	if err := m.shell.proc.Pause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = true
	return nil
}

// Resume lets a paused machine go on. On one that runs it does nothing.
func (m *Machine) Resume(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	defer m.end()
	m.mu.Lock()
	client, frozen := m.client, m.frozen
	m.mu.Unlock()
	if err := m.shell.proc.Resume(ctx); err != nil {
		return err
	}
	if frozen {
		if err := client.Thaw(ctx); err != nil {
			return m.fail(err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused, m.frozen = false, false
	return nil
}

// fail destroys the machine, whose state is not known any more.
func (m *Machine) fail(err error) error {
	return errors.Join(err, m.Close(context.Background()))
}

// Close destroys the machine and gives back all that it held. The error names what
// could not be given back. It takes milliseconds: callers need not wait for it.
func (m *Machine) Close(ctx context.Context) error {
	m.closeOnce.Do(func() {
		m.mu.Lock()
		m.closed = true
		m.shell.proc.Kill() // first: a guest that saw the connection end would have work to do
		m.client.Close()
		m.mu.Unlock()
		m.closeErr = m.shell.destroy(ctx, m.fleet)
		m.mu.Lock()
		m.current.release()
		m.mu.Unlock()
		m.fleet.mu.Lock()
		delete(m.fleet.machines, m)
		m.fleet.mu.Unlock()
		m.fleet.pool.Poke()
	})
	return m.closeErr
}
