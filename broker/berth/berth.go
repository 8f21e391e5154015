// Package berth gives a machine its place on the host: a user id that nothing else
// has, a record in the journal, a cgroup, and the socket where its vsock ports are
// reached. Machines that are booted and those that are restored have the same.
//
//	step            given back by Close, in reverse order
//	user id
//	record          in the journal: from here a later daemon can clean up
//	cgroup          killed and removed
//	vsock socket    its name is removed
//	…               what the owner adds with OnClose: thaw-vmm, killed and reaped
package berth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"thaw/broker/journal"
	"thaw/internal/hostinfo"
)

// CID is the vsock context id of every guest: each has a device of its own.
const CID = 3

// User ids of machines. Nothing else on a host has ids in this range: it lies
// above what systemd gives to containers and below 2³¹.
const (
	firstUID = 1_900_000_000
	maxSlots = 4096
)

const mib = 1 << 20

// VMMMiB is what thaw-vmm may use beside the guest's memory: its cgroup allows it and
// admission counts it. Resident are 5 MiB (bench, vmm_rss_mib), and up to 16 MiB when
// every thread of the block devices is at work.
const VMMMiB = 32

// Yard has the berths of a daemon. It is safe for several goroutines.
type Yard struct {
	journal *journal.Journal
	sockets *socketDir
	cgroups hostinfo.Cgroup

	mu    sync.Mutex
	slots map[uint32]bool // protected by mu; user ids in use
	next  uint32          // protected by mu; slot to try first

	parentOnce sync.Once
	parentErr  error
}

// NewYard returns a yard on a host whose cgroups are as found. Mounting needs root.
func NewYard(j *journal.Journal, cgroups hostinfo.Cgroup) (*Yard, error) {
	sockets, err := newSocketDir()
	if err != nil {
		return nil, err
	}
	return &Yard{journal: j, sockets: sockets, cgroups: cgroups, slots: map[uint32]bool{}}, nil
}

// Close gives back what a yard without berths has.
func (y *Yard) Close() error { return y.sockets.close() }

// Spec is what a berth is made for.
type Spec struct {
	ID        string // of the machine; a file name
	VCPUs     int
	MemoryMiB int64 // of the guest
}

// Berth is a machine's place.
type Berth struct {
	ID  string
	UID uint32 // user and group id
	// Cgroup is nil where the host has no cgroup v2. It is open until Close: a process
	// beside the machine's may be born in it later.
	Cgroup *os.File
	// Listener is the vsock socket's listening end, for the VMM. Handed closes it.
	Listener *os.File

	yard      *Yard
	cgroup    string // path, or ""
	memoryMiB int64  // limit, with a cgroup

	mu   sync.Mutex
	undo []undoStep // protected by mu; what to give back, in the order it was taken

	closeOnce sync.Once
	closeErr  error
}

type undoStep struct {
	what string
	do   func() error
}

// Take makes a berth. After an error nothing is left.
func (y *Yard) Take(spec Spec) (_ *Berth, err error) {
	b := &Berth{ID: spec.ID, yard: y}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close(context.Background()))
		}
	}()
	if b.UID, err = y.takeSlot(); err != nil {
		return nil, err
	}
	b.OnClose("slot", func() error { y.freeSlot(b.UID); return nil })
	if err := y.journal.Create(spec.ID); err != nil {
		return nil, err
	}
	b.OnClose("record", func() error { return y.journal.Remove(spec.ID) })
	if err := b.makeCgroup(spec); err != nil {
		return nil, err
	}
	if b.Listener, err = y.sockets.listen(spec.ID); err != nil {
		return nil, err
	}
	b.OnClose("vsock socket", func() error { return y.sockets.remove(spec.ID) })
	return b, nil
}

func (y *Yard) takeSlot() (uint32, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for range maxSlots {
		uid := firstUID + y.next
		y.next = (y.next + 1) % maxSlots
		if !y.slots[uid] {
			y.slots[uid] = true
			return uid, nil
		}
	}
	return 0, fmt.Errorf("berth: all %d machine slots are taken", maxSlots)
}

func (y *Yard) freeSlot(uid uint32) {
	y.mu.Lock()
	defer y.mu.Unlock()
	delete(y.slots, uid)
}

// OnClose adds a step to what Close does, before all that were added earlier.
func (b *Berth) OnClose(what string, do func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.undo = append(b.undo, undoStep{what, do})
}

// Handed closes the listener, which was only for handing over to the machine's process:
// while a copy of it is open, connections to a dead machine wait instead of failing.
func (b *Berth) Handed() {
	if b.Listener != nil {
		b.Listener.Close()
		b.Listener = nil
	}
}

// Started writes down the machine's process, so that a later daemon can end it.
func (b *Berth) Started(pid int) error {
	record, err := journal.Describe(pid)
	if err != nil {
		return err
	}
	record.Cgroup = b.cgroup
	return b.yard.journal.Write(b.ID, record)
}

// Close gives everything back. The steps have bounds of their own; ctx is for the
// wait as a whole. The error names what could not be given back.
func (b *Berth) Close(ctx context.Context) error {
	b.closeOnce.Do(func() {
		b.Handed()
		b.mu.Lock()
		undo := b.undo
		b.mu.Unlock()
		done := make(chan error, 1)
		go func() {
			var errs []error
			for i := len(undo) - 1; i >= 0; i-- {
				if err := undo[i].do(); err != nil {
					errs = append(errs, fmt.Errorf("berth: give back %s: %w", undo[i].what, err))
				}
			}
			done <- errors.Join(errs...)
		}()
		select {
		case b.closeErr = <-done:
		case <-ctx.Done():
			b.closeErr = fmt.Errorf("berth: give back machine %s: %w", b.ID, context.Cause(ctx))
		}
	})
	return b.closeErr
}

// Dir is the yard's.
func (b *Berth) Dir() string { return b.yard.Dir() }

// Dir is where machines' records are: a place for files without a name.
func (y *Yard) Dir() string { return y.journal.Dir() }
