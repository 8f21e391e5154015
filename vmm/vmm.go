// Package vmm is the machine: guest memory, processors, interrupt lines,
// legacy devices and the virtio devices on its bus, driven through /dev/kvm.
//
// One process runs one machine. Every descriptor comes from outside (Config);
// the package opens nothing but what KVM makes.
//
//	New ──▶ made ──Run──▶ running ◀──Resume── paused ◀──Restore── shell ◀─Run── New
//	          │            │ │ └────Pause───────▶ │ │
//	          │            │ └────Rollback──────▶ │ │ Rollback, Save
//	          │            │ guest ends, Stop     │ └─▶ paused
//	          ▼            ▼                      ▼
//	        Close ◀────── ended (Exit says why) ◀─┘
package vmm

import (
	"errors"
	"fmt"
	"net"
	"os"

	"thaw/internal/guestmem"
	"thaw/internal/uffd"
)

// Limits of a machine.
const (
	MaxVCPUs  = 8
	MinMemory = 128 << 20 // bytes
	MaxMemory = 16 << 30
	maxDisks  = 4
)

// What a caller branches on, besides the errors of package boot.
var (
	ErrVCPUs      = errors.New("vcpu count is out of range")
	ErrMemorySize = errors.New("memory size is out of range")
	ErrHost       = errors.New("host's kvm lacks what a machine needs")
)

// Config says what a machine is made of. New takes over none of the files;
// they may be closed after Close.
type Config struct {
	VCPUs       int    // 1 to MaxVCPUs
	MemoryBytes uint64 // MinMemory to MaxMemory, whole pages

	// Shell makes a machine with nothing in it, which Restore fills. Memory,
	// Kernel, Initrd and Cmdline are not used then, nor are the disks' layers.
	Shell bool

	KVM     *os.File // /dev/kvm
	CPUID   []byte   // what it offers guests, by kvm.EncodeCPUID; empty: it is asked
	Memory  *os.File // a memfd of MemoryBytes
	Kernel  *os.File
	Initrd  *os.File // nil: none
	Cmdline string

	Disks   []Disk
	Vsock   *Vsock // nil: none
	Net     *Net   // nil: none
	Balloon bool
	// DirtyRing gives each processor a dirty ring in place of KVM's dirty log.
	DirtyRing bool
	// Handler is a socket to a process that runs protect.Serve for this one, which the
	// tracker dirty.UffdSync needs; nil: none.
	Handler *os.File
	// Fill is a descriptor of uffd.UserModeOnly, which Restore uses and closes; nil: it goes without.
	Fill *uffd.FD
	// ConsoleLog is how many bytes of console output are kept; zero means 64 KiB.
	ConsoleLog int
	// PlainMMIO serves every access to a virtio register by an exit to user
	// space, as other VMMs do: to measure what the read-only register page
	// saves.
	PlainMMIO bool
	// Log is told what a guest's drivers did wrong; may be nil.
	Log func(error)
}

// Disk is a block device. Layers are its files, bottom first; unless
// ReadOnly, the last one is written.
type Disk struct {
	ID       string // up to 20 bytes, read by the guest
	Layers   []*os.File
	ReadOnly bool
}

// Vsock is the socket device. The host reaches a guest's port through
// Listener: connect, write "CONNECT port\n", read "OK …\n". A connection that
// the guest makes is handed to Connect, which returns the host's end or an
// error, which resets it.
type Vsock struct {
	CID      uint64
	Listener *net.UnixListener
	Connect  func(port uint32) (*os.File, error)
}

// Net is a network device over a tap that package virtio/net/tap opened, with
// offloads.
type Net struct {
	Tap *os.File
	MAC [6]byte
}

func (cfg *Config) validate() error {
	switch {
	case cfg.VCPUs < 1 || cfg.VCPUs > MaxVCPUs:
		return fmt.Errorf("vmm: %d vcpus, 1 to %d are possible: %w", cfg.VCPUs, MaxVCPUs, ErrVCPUs)
	case cfg.MemoryBytes < MinMemory || cfg.MemoryBytes > MaxMemory || cfg.MemoryBytes%guestmem.PageSize != 0:
		return fmt.Errorf("vmm: %d bytes of memory, %d to %d MiB are possible: %w", cfg.MemoryBytes, MinMemory>>20, MaxMemory>>20, ErrMemorySize)
	case cfg.KVM == nil || !cfg.Shell && (cfg.Memory == nil || cfg.Kernel == nil):
		return errors.New("vmm: configuration lacks kvm, memory or kernel")
	case len(cfg.Disks) > maxDisks:
		return fmt.Errorf("vmm: %d disks, at most %d are possible", len(cfg.Disks), maxDisks)
	}
	return nil
}

// writable is how many disks can be written.
func (cfg *Config) writable() (n int) {
	for _, d := range cfg.Disks {
		if !d.ReadOnly {
			n++
		}
	}
	return n
}
