package vmmproc

import (
	"errors"
	"fmt"
	"os"
	"time"

	"thaw/vmm/vmmproto"
)

// Spec describes the machine and the jail. Files stay the caller's, who may close them when Start has returned, and
// should close VsockListener: while any copy of it is open, connections to a dead machine wait instead of failing.
type Spec struct {
	Binary string // path of thaw-vmm; the slot's user need not be able to reach it

	// Shell makes a machine with nothing in it, which [Process.Restore] fills: without Memory, Kernel, Initrd, Cmdline
	// and the disks' layers.
	Shell bool

	KVM, Memory, Kernel *os.File // /dev/kvm; a memfd of MemoryBytes; vmlinux or bzImage
	Initrd              *os.File // or nil
	VCPUs               int
	MemoryBytes         uint64
	Cmdline             string
	Disks               []Disk
	VsockListener       *os.File // Unix stream listener for "CONNECT port", or nil: no vsock
	CID                 uint64   // of the guest, with VsockListener
	Tap                 *os.File // or nil: no network
	MAC                 [6]byte  // of the guest, with Tap
	Balloon             bool
	DirtyRing           bool // of each processor, in place of KVM's dirty log: for the tracker dirty-ring
	ConsoleLog          int  // bytes of console that the VMM keeps

	Cgroup   *os.File // cgroup v2 folder that the process is born in; nil only with Dev
	UID, GID uint32   // host ids of this slot, which nothing else on the host uses; not 0
	Dev      bool     // the host may lack cgroup v2

	// Connect is asked for a stream when the guest dials a vsock port of the host; an error makes the guest see a
	// reset. It is called from several goroutines and must not block for long; nil refuses every port. The
	// file is closed when it has been sent.
	Connect func(port uint32) (*os.File, error)

	StartTimeout time.Duration // until the machine is made; 0: 10 s
	PingEvery    time.Duration // 0: 2 s
	PingTimeout  time.Duration // without an answer for so long the process is hung, and killed; 0: 10 s
}

// Disk is one block device.
type Disk struct {
	ID       string     // vda, vdb, …
	Layers   []*os.File // bottom first; opened read-only where the VMM may not write
	ReadOnly bool
}

// ErrNotIsolated is wrapped when the host or the Spec lacks a part of the jail. No process has been started.
var ErrNotIsolated = errors.New("jail would be incomplete")

// message returns the start message and the files that go with it.
func (s *Spec) message() (*vmmproto.Start, []*os.File, error) {
	m := &vmmproto.Start{
		Shell: s.Shell, VCPUs: s.VCPUs, MemoryBytes: s.MemoryBytes, Cmdline: s.Cmdline, Initrd: s.Initrd != nil,
		Balloon: s.Balloon, DirtyRing: s.DirtyRing, ConsoleLog: s.ConsoleLog, CPUID: supportedCPUID(s.KVM),
	}
	files := []*os.File{s.KVM}
	if !s.Shell {
		files = append(files, s.Memory, s.Kernel)
	}
	if s.Initrd != nil {
		files = append(files, s.Initrd)
	}
	for _, d := range s.Disks {
		m.Disks = append(m.Disks, vmmproto.Disk{ID: d.ID, Layers: len(d.Layers), ReadOnly: d.ReadOnly})
		files = append(files, d.Layers...)
	}
	if s.VsockListener != nil {
		m.Vsock = &vmmproto.Vsock{CID: s.CID}
		files = append(files, s.VsockListener)
	}
	if s.Tap != nil {
		m.Net = &vmmproto.Net{MAC: s.MAC}
		files = append(files, s.Tap)
	}
	m.Files = m.FileNames()
	for i, f := range files {
		if f == nil {
			return nil, nil, fmt.Errorf("vmmproc: file %s is missing", m.Files[i])
		}
	}
	return m, files, nil
}

// isolated refuses what would not be a jail.
func (s *Spec) isolated() error {
	switch {
	case os.Geteuid() != 0:
		return fmt.Errorf("vmmproc: %w: only root can map another user id", ErrNotIsolated)
	case s.UID == 0 || s.GID == 0:
		return fmt.Errorf("vmmproc: %w: user id %d and group id %d must not be root's", ErrNotIsolated, s.UID, s.GID)
	case s.Cgroup == nil && !s.Dev:
		return fmt.Errorf("vmmproc: %w: no cgroup v2", ErrNotIsolated)
	}
	return nil
}

func (s *Spec) setDefaults() {
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&s.StartTimeout, 10 * time.Second},
		{&s.PingEvery, 2 * time.Second},
		{&s.PingTimeout, 10 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.fallback
		}
	}
}
