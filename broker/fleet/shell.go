package fleet

import (
	"context"
	"fmt"
	"os"
	"sync"

	"thaw/broker/berth"
	"thaw/broker/boot"
	"thaw/broker/fleet/files"
	"thaw/broker/fleet/tops"
	"thaw/vmm/vmmproc"
)

// Ids of disks.
const (
	imageDisk    = "vda"
	writableDisk = "vdb"
)

// shell is a thaw-vmm with all that a machine needs but its content.
//
//	          restore                  resume, work, roll back
//	generic ───────────▶ bound (paused) ────────────────────▶ rehearsed (paused)
//	   │                   │                                      │
//	   └───────────────────┴───────────── taken ──────────────────┘──▶ machine ──▶ destroyed
type shell struct {
	berth *berth.Berth
	proc  *vmmproc.Process
	class Class
	kind  Kind
	rings bool   // its processors have dirty rings
	image *held  // what it is bound to, or nil
	job   string // what it is to be used for: a job of this runtime; empty: not known

	mu     sync.Mutex
	top    *os.File // of the writable disk; protected by mu; nil: given back
	frozen bool     // protected by mu; a snapshot has the top as a layer

	ended chan struct{} // closed when exit is set
	exit  vmmproc.Exit
}

// newShell makes a generic shell. diskSize is what its top layer is made for.
func (f *Fleet) newShell(ctx context.Context, c Class, diskSize int64, rings bool) (_ *shell, err error) {
	b, err := f.cfg.Yard.Take(berth.Spec{ID: randomName("shell-"), VCPUs: c.VCPUs, MemoryMiB: c.MemoryMiB})
	if err != nil {
		return nil, err
	}
	s := &shell{berth: b, class: c, kind: Generic, rings: rings, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			f.logLeft(b.ID, b.Close(context.WithoutCancel(ctx)))
		}
	}()
	if s.top, err = f.tops.Take(diskSize); err != nil {
		return nil, err
	}
	b.OnClose("disk", func() error { return s.giveTop(f.tops) })
	s.proc, err = vmmproc.Start(ctx, vmmproc.Spec{
		Shell: true, Binary: f.cfg.VMM, KVM: f.kvm, VCPUs: c.VCPUs, MemoryBytes: uint64(c.MemoryMiB) * mib,
		Disks:         []vmmproc.Disk{{ID: imageDisk, ReadOnly: true}, {ID: writableDisk}},
		VsockListener: b.Listener, CID: berth.CID, Balloon: true, DirtyRing: rings, ConsoleLog: boot.ConsoleBytes,
		Cgroup: b.Cgroup, UID: b.UID, GID: b.UID, Dev: f.cfg.Dev,
	})
	if err != nil {
		return nil, fmt.Errorf("fleet: make shell: %w", err)
	}
	b.Handed()
	go s.watch()
	b.OnClose("thaw-vmm", func() error {
		err := s.proc.Close()
		if err == nil {
			<-s.ended
		}
		return err
	})
	return s, b.Started(s.proc.PID())
}

// watch notes the end of the process.
func (s *shell) watch() {
	x, err := s.proc.Wait(context.Background())
	if err != nil {
		x = vmmproc.Exit{Reason: vmmproc.Crashed, Detail: err.Error()}
	}
	s.exit = x
	close(s.ended)
}

// alive says whether the process still runs.
func (s *shell) alive() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// topFile is the top layer of the writable disk.
func (s *shell) topFile() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.top
}

// freezeTop returns the top layer as one of a snapshot, which nobody writes or empties.
func (s *shell) freezeTop() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.top == nil {
		return nil, fmt.Errorf("fleet: freeze disk layer: %w", ErrEnded)
	}
	s.frozen = true
	return files.ReadOnly(s.top)
}

// setTop puts a new one in the place of one that is frozen, and closes that: the snapshot
// has a descriptor of its own.
func (s *shell) setTop(top *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.top
	s.top, s.frozen = top, false
	return old.Close()
}

// giveTop gives the top layer to the machines to come, if nobody has it any more.
func (s *shell) giveTop(to *tops.Tops) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	top := s.top
	s.top = nil
	if s.frozen || s.alive() {
		return top.Close()
	}
	return to.Give(top)
}

// fit makes sure that the top layer has the size of the image's disk.
func (s *shell) fit(im *image) error {
	info, err := s.topFile().Stat()
	if err != nil {
		return fmt.Errorf("fleet: look at disk layer: %w", err)
	}
	if info.Size() == im.diskSize {
		return nil
	}
	if err := s.topFile().Truncate(im.diskSize); err != nil {
		return fmt.Errorf("fleet: size disk layer: %w", err)
	}
	return nil
}

// become gives the shell the content of an image, whatever it is now. It runs then, with
// stream as a connection to it, or is paused if that is nil.
func (s *shell) become(ctx context.Context, f *Fleet, im *image, stream *os.File) (vmmproc.Restored, error) {
	plan := f.images.planOf(im, s.job)
	defer plan.release()
	given := im.handOver(plan, s.topFile())
	given.Stream = stream
	if s.kind != Generic {
		return s.proc.Rollback(ctx, given, nil)
	}
	if err := s.fit(im); err != nil {
		return vmmproc.Restored{}, err
	}
	s.kind = Bound // also after an error: then it is destroyed
	return s.proc.Restore(ctx, given)
}

// destroy gives back all that the shell holds.
func (s *shell) destroy(ctx context.Context, f *Fleet) error {
	err := s.berth.Close(ctx)
	s.image.release()
	f.logLeft(s.berth.ID, err)
	return err
}

// logLeft reports what could not be given back; the journal still knows of it.
func (f *Fleet) logLeft(id string, err error) {
	if err != nil {
		f.cfg.Log.Error("shell left something behind", "shell", id, "error", err)
	}
}
