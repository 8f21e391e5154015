package fleet

import (
	"context"
	"fmt"
)

// Rollback puts the machine back, in place, to where a snapshot of the same template
// was saved: one of its own, an ancestor or a sibling. On return its guest has
// acknowledged a new generation, and runs; connections from before are gone, and Agent
// is another. Errors: those of package store and ErrUnrelated, with which nothing has
// happened; after another error the machine is destroyed.
func (m *Machine) Rollback(ctx context.Context, snapshot string) (Record, error) {
	if err := m.begin(ctx); err != nil {
		return Record{}, err
	}
	defer m.end()
	c := startClock()
	h, err := m.fleet.images.get(ctx, snapshot)
	if err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	related := h.template == m.current.template && h.class == m.current.class && h.diskSize == m.current.diskSize
	old := m.client
	m.mu.Unlock()
	if !related {
		h.release()
		return Record{}, fmt.Errorf("fleet: roll machine %s back to %s: %w", m.id, snapshot, ErrUnrelated)
	}
	c.done("image")
	r, err := m.rollback(context.WithoutCancel(ctx), h, c)
	old.Close()
	if err != nil {
		return Record{}, m.fail(err)
	}
	return r, nil
}

// rollback does it; h is the machine's from then on, also after an error.
func (m *Machine) rollback(ctx context.Context, h *held, c *clock) (Record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, operationTime, errLate)
	defer cancel()
	restored, client, generation, err := m.fleet.become(ctx, m.shell, h.image, m.hostname, "roll back", c)
	if err != nil {
		h.release()
		return Record{}, err
	}
	r := Record{
		Op: OpRollback, Machine: m.id, Snapshot: h.id, Class: h.class, Generation: generation, Ack: c.total(),
		Overlays: len(h.overlays), Depth: h.depth,
		Private: restored.Private, Copied: restored.Copied, PutBack: restored.PutBack, Dropped: restored.Dropped,
	}
	m.fleet.note(&r, c)
	err = m.advance(h, func() {
		m.client, m.record, m.paused, m.frozen, m.overlays = client, r, false, false, len(h.overlays)
	})
	if err != nil {
		client.Close()
		return Record{}, err
	}
	return r, nil
}

// Fork makes machines that go on where this one stands: it is saved first, and goes on
// too. A paused machine stays paused.
func (m *Machine) Fork(ctx context.Context, spec CheckpointSpec, machines []RestoreSpec) ([]*Machine, *Checkpoint, error) {
	c, err := m.Checkpoint(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	forks, err := m.fleet.Fork(ctx, c.ID, machines)
	return forks, c, err
}
