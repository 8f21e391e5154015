package main

import (
	"fmt"
	"io"
	"os"

	"thaw/internal/guestmem"
	"thaw/snapshot/memimage"
	"thaw/snapshot/pageindex"
	"thaw/vmm"
	"thaw/vmm/dirty"
	"thaw/vmm/vmmproc/vmmchild"
	"thaw/vmm/vmmproto"
)

// Restore implements vmmchild.Machine.
func (m machine) Restore(r *vmmproto.Restore, f vmmchild.RestoreFiles) (vmmproto.Restored, error) {
	image := vmm.Image{
		State: f.State, Base: f.Base, Overlays: f.Overlays, Pagemap: f.Pagemap, Userfault: f.Userfault,
		Tracker: dirty.Tracker(r.Tracker), Stream: f.Stream,
	}
	for _, layers := range f.Layers {
		image.Disks = append(image.Disks, vmm.Disk{Layers: layers})
	}
	plan, err := readPlan(f.Plan, m.MemoryBytes())
	if err != nil {
		image.Close()
		return vmmproto.Restored{}, err
	}
	image.Plan = plan
	var done vmm.Restored
	switch {
	case r.Rebase:
		err = m.Machine.Rebase(image)
	case r.InPlace:
		done, err = m.Machine.Rollback(image, f.Record)
	default:
		done, err = m.Machine.Restore(image)
	}
	if err != nil {
		return vmmproto.Restored{}, err
	}
	return vmmproto.Restored{
		Phases: phases("restore", done.Phases), Private: done.Memory.Private, Copied: done.Memory.Copied,
		PutBack: done.Memory.Restored, Dropped: done.Memory.Dropped,
	}, nil
}

// readPlan reads and closes a file with a memimage.Plan.
func readPlan(f *os.File, memory uint64) (memimage.Plan, error) {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return memimage.Plan{}, fmt.Errorf("thaw-vmm: stat plan: %w", err)
	}
	if info.Size() > 3*pageindex.MaxEncoded {
		return memimage.Plan{}, fmt.Errorf("thaw-vmm: plan of %d bytes: %w", info.Size(), memimage.ErrImage)
	}
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, info.Size()), b); err != nil {
		return memimage.Plan{}, fmt.Errorf("thaw-vmm: read plan: %w", err)
	}
	return memimage.DecodePlan(b, uint32(memory/guestmem.PageSize))
}

// Save implements vmmchild.Machine.
func (m machine) Save(s *vmmproto.Save, f vmmchild.SaveFiles) (vmmproto.Saved, error) {
	done, err := m.Machine.Save(vmm.SaveSpec{
		State: f.State, Memory: f.Memory, Tops: f.Tops, Tracker: dirty.Tracker(s.Tracker), CopyAhead: s.CopyAhead, WriteProtect: s.WriteProtect,
		Next: dirty.Tracker(s.Next), Userfault: f.Userfault, Resume: s.Resume,
	})
	if err != nil {
		return vmmproto.Saved{}, err
	}
	return vmmproto.Saved{
		Tracker: string(done.Tracker), StateBytes: done.StateBytes, Pages: done.Pages, Zero: done.Zero, Candidates: done.Candidates, Same: done.Same,
		Again: done.Again, PauseMicros: done.Pause.Microseconds(), AheadMicros: done.CopyAhead.Microseconds(),
		Phases: phases("save", done.Phases),
	}, nil
}

// Changes implements vmmchild.Machine.
func (m machine) Changes() (vmmproto.Changed, error) {
	differ, looked, err := m.Changed()
	return vmmproto.Changed{Differ: differ, Looked: looked}, err
}

// phases puts the machine's steps into the protocol's words.
func phases(of string, list []vmm.Phase) []vmmproto.Phase {
	var out []vmmproto.Phase
	for _, p := range list {
		out = append(out, vmmchild.Within(of, p.Name, p.Duration))
	}
	return out
}
