package vmmproc

import (
	"context"
	"fmt"
	"os"
	"time"

	"thaw/vmm/vmmproto"
)

// Image is what a machine is restored from. The files stay the caller's. State, Plan, Base and Overlays are passed
// read-only or sealed: the process could write to what it may write to.
type Image struct {
	State    *os.File   // as Save wrote it
	Plan     *os.File   // memimage.Plan, encoded
	Base     *os.File   // memory of the template; nil: none
	Overlays []*os.File // pages of checkpoints, at most vmmproto.MaxOverlays
	Disks    []Disk     // with all layers; the last of a writable disk is new, or its content is of no interest
	Tracker  string     // to start for the next save; empty: pagemap
	// Stream is an end of a stream socket, served like one that connects to Spec.VsockListener. With it the machine
	// runs at once, without it stands until [Process.Resume].
	Stream *os.File
}

// Restored tells what a restore did. Counts are in pages, and those of a rollback.
type Restored struct {
	Phases  []vmmproto.Phase
	Private int  // that the machine had made its own
	Copied  int  // of them, that differed
	PutBack int  // that the machine had given back, or that another image had left
	Dropped bool // dropped rather than compared
}

// Restore gives a shell the machine that it is to be. After an error the process is of no further use.
func (p *Process) Restore(ctx context.Context, i Image) (Restored, error) {
	return p.restore(ctx, i, false, nil)
}

// Rollback puts the machine back to where i was saved, in place. i has the base of the image that
// the process was restored from. Pages that the machine had made its own are written to record, a pageindex.Index,
// unless that is nil. After an error the process may be of no further use: it ends by itself then.
func (p *Process) Rollback(ctx context.Context, i Image, record *os.File) (Restored, error) {
	return p.restore(ctx, i, true, record)
}

// Rebase gives the machine the files of i for what it was last restored from or saved as: the same bytes in fewer files,
// since each save adds one. The machine goes on as it is. State is passed and not looked at; disks are left out.
func (p *Process) Rebase(ctx context.Context, i Image) error {
	m := vmmproto.Restore{Rebase: true, Base: i.Base != nil, Overlays: len(i.Overlays)}
	files := []*os.File{i.State, i.Plan}
	if i.Base != nil {
		files = append(files, i.Base)
	}
	files = append(files, i.Overlays...)
	reply, err := p.call(ctx, func(id uint64) vmmproto.Message { m.ID = id; return &m }, files...)
	if err != nil {
		return err
	}
	_, err = orDone[*vmmproto.Restored](p, reply)
	return err
}

func (p *Process) restore(ctx context.Context, i Image, inPlace bool, record *os.File) (Restored, error) {
	m := vmmproto.Restore{
		InPlace: inPlace, Base: i.Base != nil, Overlays: len(i.Overlays), Record: record != nil, Stream: i.Stream != nil, Tracker: i.Tracker,
	}
	files := []*os.File{i.State, i.Plan}
	if i.Base != nil {
		files = append(files, i.Base)
	}
	files = append(files, i.Overlays...)
	for _, d := range i.Disks {
		m.Layers = append(m.Layers, len(d.Layers))
		files = append(files, d.Layers...)
	}
	if !inPlace {
		// The process has no /proc in its jail. Root may look at it; the process sees only itself through it.
		pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", p.child.pid))
		if err != nil {
			return Restored{}, fmt.Errorf("vmmproc: restore: %w", err)
		}
		defer pagemap.Close()
		m.Pagemap = true
		files = append(files, pagemap)
	}
	device, err := p.openUserfault(i.Tracker)
	if err != nil {
		return Restored{}, fmt.Errorf("vmmproc: restore: %w", err)
	}
	if device != nil {
		defer device.Close()
		m.Userfault = true
		files = append(files, device)
	}
	if record != nil {
		files = append(files, record)
	}
	if i.Stream != nil {
		files = append(files, i.Stream)
	}
	reply, err := p.call(ctx, func(id uint64) vmmproto.Message { m.ID = id; return &m }, files...)
	if err != nil {
		return Restored{}, err
	}
	r, err := orDone[*vmmproto.Restored](p, reply)
	if err != nil {
		return Restored{}, err
	}
	return Restored{Phases: r.Phases, Private: r.Private, Copied: r.Copied, PutBack: r.PutBack, Dropped: r.Dropped}, nil
}

// SaveSpec says how to save a machine. The files stay the caller's; the process can write to State and Memory until
// the caller seals them.
type SaveSpec struct {
	State *os.File // empty, at least 8 MiB long
	// Memory is an empty file of the memory's size for the pages that changed; nil for a machine that was booted, whose
	// memory is all in its own file.
	Memory    *os.File
	Tops      []*os.File // a new top layer for each writable disk
	Tracker   string     // that finds the pages; empty: pagemap
	CopyAhead bool       // copy most pages before the pause
	// WriteProtect has the pages copied after the pause, each before the guest writes to it: with tracker uffd-wp.
	WriteProtect bool
	Next         string // tracker to start for the next save; empty: the same
	Resume       bool   // go on at once
}

// Saved tells what a save did. The numbers are the process's word. Counts are in pages.
type Saved struct {
	Tracker    string // that found the pages
	StateBytes int64
	Pages      int // in the file
	Zero       int // that are zeros now and were not
	Candidates int // looked at
	Same       int // of them, that had not changed
	Again      int // looked at once more in the pause
	Pause      time.Duration
	CopyAhead  time.Duration
	Phases     []vmmproto.Phase
}

// Save writes a paused instant of the machine.
func (p *Process) Save(ctx context.Context, s SaveSpec) (Saved, error) {
	m := vmmproto.Save{
		Memory: s.Memory != nil, Tops: len(s.Tops), Tracker: s.Tracker, CopyAhead: s.CopyAhead,
		WriteProtect: s.WriteProtect, Next: s.Next, Resume: s.Resume,
	}
	files := []*os.File{s.State}
	if s.Memory != nil {
		files = append(files, s.Memory)
	}
	files = append(files, s.Tops...)
	device, err := p.openUserfault(s.Next)
	if err != nil {
		return Saved{}, fmt.Errorf("vmmproc: save: %w", err)
	}
	if device != nil {
		defer device.Close()
		m.Userfault = true
		files = append(files, device)
	}
	reply, err := p.call(ctx, func(id uint64) vmmproto.Message { m.ID = id; return &m }, files...)
	if err != nil {
		return Saved{}, err
	}
	r, err := orDone[*vmmproto.Saved](p, reply)
	if err != nil {
		return Saved{}, err
	}
	return Saved{
		Tracker: r.Tracker, StateBytes: r.StateBytes, Pages: r.Pages, Zero: r.Zero, Candidates: r.Candidates, Same: r.Same, Again: r.Again,
		Pause: time.Duration(r.PauseMicros) * time.Microsecond, CopyAhead: time.Duration(r.AheadMicros) * time.Microsecond,
		Phases: r.Phases,
	}, nil
}

// orDone takes the reply that belongs to the request, or Done with the reason why there is none.
func orDone[T vmmproto.Reply](p *Process, reply vmmproto.Reply) (T, error) {
	if done, ok := reply.(*vmmproto.Done); ok && done.Error != "" {
		var none T
		return none, fmt.Errorf("vmmproc: vmm says: %s", done.Error)
	}
	return as[T](p, reply)
}

// Changed counts the pages that differ from what the machine was restored from or saved as last, and those that were
// looked at: the process's word. The machine runs on.
func (p *Process) Changed(ctx context.Context) (differ, looked int, err error) {
	reply, err := p.call(ctx, func(id uint64) vmmproto.Message { return &vmmproto.Changes{ID: id} })
	if err != nil {
		return 0, 0, err
	}
	m, err := orDone[*vmmproto.Changed](p, reply)
	if err != nil {
		return 0, 0, err
	}
	return m.Differ, m.Looked, nil
}
