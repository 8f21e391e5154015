package vmm

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
	"thaw/snapshot/format"
	"thaw/snapshot/memimage"
	"thaw/snapshot/pageindex"
	"thaw/vmm/dirty"
	"thaw/vmm/pagetable"
)

// SaveSpec says how to save a machine. Its files are the machine's from then on,
// also after an error.
type SaveSpec struct {
	State *os.File // an empty file that is large enough
	// Memory is an empty file of the memory's size, for the pages that differ
	// from the image that the machine was restored from or saved as last. Nil
	// for a machine that was booted: all of its memory is in its own file.
	Memory *os.File
	// Tops has a new top layer for each writable disk: what was written so far
	// stays as it is in the layer below.
	Tops []*os.File
	// Tracker finds the pages; CopyAhead copies most of them while the guest
	// still runs, so that the pause covers only those written meanwhile.
	Tracker   dirty.Tracker
	CopyAhead bool
	// WriteProtect has the pages copied after the pause, each before the guest writes
	// to it. It is for dirty.UffdSync, and excludes CopyAhead.
	WriteProtect bool
	// Userfault is an open uffd.Device, if Next needs one that was not passed before.
	Userfault *os.File
	// Next is the tracker to start for the next save; empty: the same.
	Next dirty.Tracker
	// Resume lets the machine go on at once.
	Resume bool
}

// Saved tells what a save did. Pages are those in the file; counts are in pages.
type Saved struct {
	Tracker    dirty.Tracker // that found the pages
	StateBytes int64
	Pages      int // in the file
	Zero       int // that are zeros now and were not
	Candidates int // looked at
	Same       int // of them, as they were
	Again      int // looked at once more in the pause, with CopyAhead
	Pause      time.Duration
	CopyAhead  time.Duration
	Phases     []Phase
}

// Save writes a paused instant of the machine: its state, and the pages that
// differ. It pauses the machine, which goes on if Resume says so, also after an
// error.
func (m *Machine) Save(s SaveSpec) (saved Saved, err error) {
	defer s.close()
	delta, err := m.newDelta(&s)
	if err != nil {
		return saved, err
	}
	p := startPhases()
	ahead := delta != nil && s.CopyAhead
	if ahead {
		if err := m.copyAhead(delta, s.Tracker); err != nil {
			return saved, err
		}
		p.done("copy ahead")
		saved.CopyAhead = total(p.list)
	}
	began := time.Now()
	m.Pause()
	p.done("pause")
	instant, err := m.savePaused(&s, delta, ahead, &saved, &p)
	if err != nil {
		// What was written since the last save is not known any more.
		m.track.Stop()
	}
	if s.Resume {
		m.Resume()
		p.done("resume")
	}
	saved.Tracker, saved.Pause = s.Tracker, time.Since(began)
	m.track.EndPause()
	if err == nil && delta != nil && s.WriteProtect {
		err = m.finishStaged(delta, &s, instant, &saved)
		p.done("copy pages")
	}
	if err == nil {
		saved.StateBytes, err = m.writeState(s.State, instant)
		p.done("write state")
	}
	m.lost = m.lost || err != nil
	saved.Phases = p.list
	return saved, err
}

// instant is what is written of a pause when it is over.
type instant struct {
	state  *State
	index  *pageindex.Index  // nil for a machine that was booted
	staged []pagemap.Range   // that are being copied, before there is an index
	tables *pagetable.Tables // known in the pause; nil: still to be found
}

// savePaused is what Save does in the pause, in the order that order.go gives.
func (m *Machine) savePaused(s *SaveSpec, delta *memimage.Delta, ahead bool, saved *Saved, p *phases) (*instant, error) {
	// The layer's switch first: the state is to know of it.
	if err := m.freezeDisks(s); err != nil {
		return nil, err
	}
	p.done("freeze disks")
	state, err := m.state()
	if err != nil {
		return nil, err
	}
	p.done("state")
	at := &instant{state: &state}
	m.at = state.Instant
	if delta == nil {
		// The memory itself goes on changing when the machine does.
		if shadowed, err := m.shadowed(); err != nil || !shadowed {
			return at, err
		}
		at.tables, err = m.coldTables(&state)
		p.done("find tables")
		return at, err
	}
	if s.WriteProtect {
		at.staged, err = m.track.Stage(s.Memory)
		p.done("protect pages")
		return at, err
	}
	if at.index, err = m.finishDelta(delta, s, ahead, saved, p); err != nil {
		return nil, err
	}
	if err = m.extend(s, at.index); err != nil {
		return nil, err
	}
	err = m.track.Next(s.Tracker, s.Next)
	p.done("tracker")
	return at, err
}

// extend makes a delta part of the machine's image.
func (m *Machine) extend(s *SaveSpec, delta *pageindex.Index) error {
	file := s.Memory
	s.Memory = nil
	image, err := m.image.Extend(delta, file)
	if err != nil {
		file.Close()
		return err
	}
	m.image = image
	return nil
}

// finishStaged makes a delta of the pages that were copied, in the file in which they
// are. The machine may run.
func (m *Machine) finishStaged(delta *memimage.Delta, s *SaveSpec, at *instant, saved *Saved) error {
	if err := m.track.Staged(); err != nil {
		m.track.Stop()
		return err
	}
	if n := pagemap.Pages(at.staged); n > 0 {
		staged, err := unix.Mmap(int(s.Memory.Fd()), 0, n*guestmem.PageSize, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("vmm: map copied pages: %w", err)
		}
		defer unix.Munmap(staged)
		if err := delta.AddStaged(at.staged, staged); err != nil {
			return err
		}
	}
	at.index = saved.count(delta)
	return m.extend(s, at.index)
}

// close closes the files that were not put to use.
func (s *SaveSpec) close() {
	closeFiles(append([]*os.File{s.State, s.Memory, s.Userfault}, s.Tops...))
}

// newDelta checks what is asked for, and returns a delta of a restored machine or
// nil for one that was booted.
func (m *Machine) newDelta(s *SaveSpec) (*memimage.Delta, error) {
	switch {
	case len(s.Tops) != 0 && len(s.Tops) != m.cfg.writable():
		return nil, fmt.Errorf("vmm: save: %d new layers for %d writable disks", len(s.Tops), m.cfg.writable())
	case m.lost:
		return nil, fmt.Errorf("vmm: save: an earlier save failed half-way, roll back first: %w", ErrShell)
	case m.image == nil && m.cfg.Shell:
		return nil, fmt.Errorf("vmm: save: %w", ErrShell)
	case m.image == nil && s.Memory != nil, m.image != nil && s.Memory == nil:
		return nil, fmt.Errorf("vmm: save: a file for pages is for restored machines, and for those only: %w", ErrShell)
	case m.image == nil:
		return nil, nil
	}
	if s.Next == "" {
		if s.Next = s.Tracker; s.Next == "" {
			s.Next = m.track.Automatic()
		}
	}
	if s.Tracker == "" {
		s.Tracker = cmp.Or(m.track.Name(), dirty.Pagemap)
	}
	if s.Userfault != nil {
		m.track.SetUserfault(s.Userfault)
		s.Userfault = nil
	}
	if err := m.track.Check(s.Tracker, s.Next); err != nil {
		return nil, err
	}
	if s.WriteProtect && (s.Tracker != dirty.UffdSync || s.Next != dirty.UffdSync || s.CopyAhead) {
		return nil, fmt.Errorf("vmm: save: copying after the pause is for tracker %s, and excludes copying ahead: %w", dirty.UffdSync, dirty.ErrTracker)
	}
	return m.image.NewDelta(m.mem, s.Memory)
}

// copyAhead copies what differs now while the guest runs. From here on it is known
// what it writes.
func (m *Machine) copyAhead(delta *memimage.Delta, name dirty.Tracker) error {
	list, err := m.track.FindAhead(name)
	if err == nil {
		err = delta.Add(m.candidates(name, list))
	}
	if err != nil {
		m.track.Stop()
	}
	return err
}

// candidates returns the pages that may differ from the image when a tracker has found
// list: private pages say nothing of those that are private no more.
func (m *Machine) candidates(name dirty.Tracker, list []pagemap.Range) []pagemap.Range {
	if name == dirty.Pagemap {
		return m.image.Candidates(list)
	}
	return list
}

// finishDelta adds, in the pause, what copyAhead has not seen, and returns the
// index; nil without a delta.
func (m *Machine) finishDelta(delta *memimage.Delta, s *SaveSpec, ahead bool, saved *Saved, p *phases) (*pageindex.Index, error) {
	if delta == nil {
		return nil, nil
	}
	var list []pagemap.Range
	var err error
	if ahead {
		list, err = m.track.FindAgain()
		saved.Again = pagemap.Pages(list)
	} else {
		list, err = m.track.Find(s.Tracker)
		list = m.candidates(s.Tracker, list)
	}
	if err != nil {
		return nil, err
	}
	p.done("find pages")
	if err := delta.Add(list); err != nil {
		return nil, err
	}
	p.done("copy pages")
	return saved.count(delta), nil
}

// count takes the numbers of a delta that is whole, and returns its index.
func (saved *Saved) count(delta *memimage.Delta) *pageindex.Index {
	index := delta.Index()
	stats := delta.Stats()
	saved.Candidates, saved.Same = stats.Candidates, stats.Same
	saved.Pages = int(index.Count(func(source uint16) bool { return source >= pageindex.FirstOverlay }))
	saved.Zero = int(index.Count(func(source uint16) bool { return source == pageindex.Zero }))
	return index
}

// freezeDisks puts new layers on the writable disks, in their order. Where one
// fails, those before it have a new layer already: the machine goes on, and the
// snapshot is not made.
func (m *Machine) freezeDisks(s *SaveSpec) error {
	if len(s.Tops) == 0 {
		return nil
	}
	n := 0
	for i, disk := range m.cfg.Disks {
		if disk.ReadOnly {
			continue
		}
		if err := m.devices.disk(i).Freeze(s.Tops[n]); err != nil {
			return err
		}
		m.diskFiles = append(m.diskFiles, s.Tops[n])
		s.Tops[n] = nil
		n++
	}
	return nil
}

// writeState writes the state file and returns its length. The machine may run: the
// image does not change.
func (m *Machine) writeState(f *os.File, at *instant) (int64, error) {
	var w format.Writer
	if err := w.AddCBOR(sectionMachine, at.state); err != nil {
		return 0, fmt.Errorf("vmm: encode state: %w", err)
	}
	if at.index != nil {
		if err := w.Add(sectionMemory, at.index.Encode()); err != nil {
			return 0, fmt.Errorf("vmm: encode state: %w", err)
		}
	}
	if m.tables != nil {
		// Tables of the top level are where there were some before, or in pages that changed.
		at.tables = m.findTables(tableMemory{m.mem, m.image.Page}, at.state, m.tables.Tops, setOf(at.index))
		m.tables = at.tables
	}
	if at.tables != nil {
		if err := addTables(&w, at.tables, uint32(m.mem.Size()/guestmem.PageSize)); err != nil {
			return 0, fmt.Errorf("vmm: encode state: %w", err)
		}
	}
	var b bytes.Buffer
	b.Grow(int(w.Size()))
	if _, err := w.WriteTo(&b); err != nil {
		return 0, fmt.Errorf("vmm: encode state: %w", err)
	}
	return w.Size(), writeFile(f, b.Bytes())
}

// writeFile writes b to the start of f, by the vectored call that the jail allows
// for disks.
func writeFile(f *os.File, b []byte) error {
	n, err := unix.Pwritev2(int(f.Fd()), [][]byte{b}, 0, 0)
	if err == nil && n != len(b) {
		err = unix.ENOSPC
	}
	if err != nil {
		return fmt.Errorf("vmm: write %d bytes: %d written: %w", len(b), n, err)
	}
	return nil
}

// writeRecord writes which pages a machine has made its own, as runs of no
// source.
func writeRecord(f *os.File, private []pagemap.Range, pages uint32) error {
	defer f.Close()
	x := pageindex.NewBuilder(pages)
	for _, r := range private {
		if err := x.Add(pageindex.Run{First: r.First, Count: r.Count}); err != nil {
			return fmt.Errorf("vmm: record pages: %w", err)
		}
	}
	return writeFile(f, x.Index().Encode())
}
