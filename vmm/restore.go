package vmm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/internal/pagemap"
	"thaw/snapshot/format"
	"thaw/snapshot/memimage"
	"thaw/vmm/boot"
	"thaw/vmm/dirty"
	"thaw/vmm/pagetable"
)

// Names of the sections of a state file that the VMM writes.
const (
	sectionMachine = "machine" // State
	sectionMemory  = "memory"  // index of the pages that differ from the parent's
	sectionTables  = "tables"  // the guest's page tables, see addTables
)

// ErrShell is wrapped when a machine is not in the state that a call needs.
var ErrShell = errors.New("machine is not a shell, or is one still")

// Image is what a machine is restored from. Its files are the machine's from
// then on, also after an error.
type Image struct {
	State    *os.File // as Save wrote it
	Plan     memimage.Plan
	Base     *os.File // nil: none
	Overlays []*os.File
	// Disks are the machine's, each with all of its layers. The last layer of a
	// writable one is new, or what was written to it since is not looked at.
	Disks   []Disk
	Pagemap *os.File // of this process; nil: passed before
	// Userfault is an open uffd.Device, for the trackers that need it; nil: passed
	// before, or not wanted.
	Userfault *os.File
	// Tracker is to be started; empty: one that follows writes goes on, else
	// dirty.Pagemap.
	Tracker dirty.Tracker
	// Stream is served as if it had been accepted from the vsock listener, and the
	// machine runs at once: what waits in it for the guest costs no round trip. Nil: the
	// machine stands until Resume.
	Stream *os.File
}

// Close closes the files, for a caller that does not come to use the image.
func (i *Image) Close() {
	files := append([]*os.File{i.State, i.Base, i.Pagemap, i.Userfault, i.Stream}, i.Overlays...)
	for _, d := range i.Disks {
		files = append(files, d.Layers...)
	}
	closeFiles(files)
}

// Restored tells what a restore or a rollback did.
type Restored struct {
	Memory memimage.PutBack // of a rollback
	Phases []Phase
}

// Restore gives a shell the machine that it is to be, as it was saved. After an error the
// shell must not be used any more.
func (m *Machine) Restore(i Image) (r Restored, err error) {
	defer i.Close()
	if !m.cfg.Shell || m.image != nil {
		return r, fmt.Errorf("vmm: restore: %w", ErrShell)
	}
	p := startPhases()
	state, err := m.open(&i, &p)
	if err != nil {
		return r, err
	}
	if err := m.image.Lay(m.mem, m.cfg.Fill); err != nil {
		return r, err
	}
	p.done("memory")
	// Beside all that comes next, the guest's first steps included.
	m.ahead.Go(m.image.Hot(m.mem))
	if i.Tracker != "" && i.Tracker != dirty.Pagemap {
		m.ahead.Wait() // it would tell of these pages
		p.done("hot pages")
	}
	err = m.become(state, &i, &p)
	return Restored{Phases: p.list}, err
}

// interruptTime is for the kernel's worker that brings the last interrupts of an irqfd
// to the I/O APIC. One that came after the controllers were set would be an interrupt too
// many in a machine that is to equal its image. It is waited for by time: taking the irqfds
// away and giving them back would wait for it, and for much else of the host's. Only a
// machine that stands afterwards has the time; in one that runs on, a driver finds nothing
// to do.
const interruptTime = 20 * time.Millisecond

// Rollback puts the machine back to where an image was saved, in place. The image has the
// base of the one that the machine was restored from. After an error before anything was
// changed the machine is paused; later errors end it.
func (m *Machine) Rollback(i Image, record *os.File) (r Restored, err error) {
	defer i.Close()
	if m.image == nil {
		return r, fmt.Errorf("vmm: roll back: %w", ErrShell)
	}
	p := startPhases()
	m.Pause()
	p.done("pause")
	before := m.at
	state, err := m.open(&i, &p)
	if err != nil {
		return r, err
	}
	defer func() {
		if err != nil {
			m.end(Internal, fmt.Sprintf("roll back: %v", err))
		}
	}()
	for _, t := range m.transports {
		t.Reset()
	}
	if i.Stream == nil {
		time.Sleep(interruptTime)
	}
	p.done("stop devices")
	private, exact, err := m.changed(state, before)
	if err != nil {
		return r, err
	}
	p.done("find pages")
	if record != nil {
		if err := writeRecord(record, private, m.image.Index().Pages); err != nil {
			return r, err
		}
	}
	if r.Memory, err = m.putBackMemory(private, exact, &p); err != nil {
		return r, err
	}
	err = m.become(state, &i, &p)
	r.Phases = p.list
	return r, err
}

// changed returns the pages that may differ from the image that s belongs to, when the
// tracker knows what was written since the instant before. exact: there are no others.
// Else there may be, among those that an image covers.
func (m *Machine) changed(s *State, before []byte) (list []pagemap.Range, exact bool, err error) {
	if m.track.Follows() && len(before) > 0 && bytes.Equal(s.Instant, before) {
		list, err = m.track.Find(m.track.Name())
		return list, true, err
	}
	list, err = m.track.Private()
	return list, false, err
}

// Rebase has the machine compare with, and go back to, the same bytes in other files:
// those of i, whose state and disks are not looked at. The machine goes on as it is.
// After an error nothing has changed.
func (m *Machine) Rebase(i Image) error {
	defer i.Close()
	if m.image == nil {
		return fmt.Errorf("vmm: rebase: %w", ErrShell)
	}
	if err := m.openMemory(&i); err != nil {
		return fmt.Errorf("vmm: rebase: %w", err)
	}
	return nil
}

// open reads the image's state and opens its memory, in place of the one that
// the machine had. It changes nothing else; after an error the files are closed.
func (m *Machine) open(i *Image, p *phases) (*State, error) {
	if i.Stream != nil && m.devices.host == nil {
		return nil, fmt.Errorf("vmm: restore: stream for a machine without vsock")
	}
	state, tables, err := m.readState(i.State)
	if err != nil {
		return nil, err
	}
	p.done("state file")
	if err := m.openMemory(i); err != nil {
		return nil, err
	}
	p.done("open memory")
	if i.Pagemap != nil {
		m.track.SetPagemap(i.Pagemap)
		i.Pagemap = nil
	}
	if i.Userfault != nil {
		m.track.SetUserfault(i.Userfault)
		i.Userfault = nil
	}
	m.lost, m.at = false, state.Instant
	return state, m.needTables(state, tables, p)
}

// openMemory makes the files of i the machine's image.
func (m *Machine) openMemory(i *Image) error {
	base, overlays := i.Base, i.Overlays
	i.Base, i.Overlays = nil, nil
	open := func() (*memimage.Image, error) { return memimage.Open(i.Plan, m.mem.Size(), base, overlays) }
	if m.image != nil {
		open = func() (*memimage.Image, error) { return m.image.Reopen(i.Plan, base, overlays) }
	}
	image, err := open()
	if err != nil {
		return err
	}
	m.image = image
	return nil
}

// needTables finds the page tables of an image that does not name them although
// this host needs to know them: it was saved on another kind.
func (m *Machine) needTables(s *State, t *pagetable.Tables, p *phases) error {
	shadowed, err := m.shadowed()
	if err != nil {
		return err
	}
	if !shadowed {
		t = nil
	} else if t == nil {
		t = m.findTables(tableMemory{m.mem, m.image.Page}, s, setOf(m.image.Index()))
		p.done("find tables")
	}
	m.tables = t
	return nil
}

// readState reads and checks a state file.
func (m *Machine) readState(f *os.File) (*State, *pagetable.Tables, error) {
	file, err := format.Read(f, format.Limits{})
	if err != nil {
		return nil, nil, fmt.Errorf("vmm: read state: %w", err)
	}
	s := new(State)
	if err := file.CBOR(sectionMachine, s); err != nil {
		return nil, nil, fmt.Errorf("vmm: read state: %w", err)
	}
	if err := m.check(s); err != nil {
		return nil, nil, err
	}
	tables, err := readTables(file, uint32(m.mem.Size()/guestmem.PageSize))
	return s, tables, err
}

// become sets the state and a new generation, and lets the machine run if it is to.
func (m *Machine) become(s *State, i *Image, p *phases) error {
	// Before the first page is written, which KVM does when it is given the registers
	// of kvmclock. A tracker that follows writes goes on: what it finds next is what
	// differs, and what was put back.
	if i.Tracker == "" && !m.track.Follows() {
		i.Tracker = dirty.Pagemap
	}
	if i.Tracker != "" && i.Tracker != m.track.Name() {
		if err := m.track.Start(i.Tracker); err != nil {
			return err
		}
		p.done("tracker")
	}
	if err := m.setState(s, i); err != nil {
		return err
	}
	p.done("set state")
	if err := boot.NewGeneration(m.mem, generationAddress); err != nil {
		return err
	}
	m.restored, m.ownTaken = &s.Clock, kvm.Unmasked(s.Chips.IOAPIC, generationGSI)
	p.done("generation")
	if i.Stream == nil {
		return nil
	}
	stream := i.Stream
	i.Stream = nil
	if err := m.devices.host.Serve(stream); err != nil {
		return err
	}
	m.Resume()
	p.done("resume")
	return nil
}

// total is the time of all phases.
func total(list []Phase) (t time.Duration) {
	for _, p := range list {
		t += p.Duration
	}
	return t
}
