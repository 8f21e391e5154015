// Package kvm binds the parts of the kernel's KVM interface that gokvm lacks,
// and wraps both in handles: System is /dev/kvm, whose descriptor stays the
// caller's, VM a machine and VCPU one of its processors, which own theirs.
// Sections in comments are those of the kernel's
// Documentation/virt/kvm/api.rst.
//
// gokvm passes pointers as integers through a function of its own; an object
// on a goroutine's stack could move in between. What goes through gokvm here
// therefore lives on the heap: it hangs off a handle.
package kvm

import (
	"errors"
	"fmt"
	"os"
	"sync"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
	"golang.org/x/sys/unix"
)

// ErrNotUsable is wrapped when /dev/kvm answers but cannot run machines.
var ErrNotUsable = errors.New("kvm is not usable")

// Capabilities that are asked for by number (KVM_CAP_…).
const (
	CapIRQChip      = 0
	CapIRQFD        = 32
	CapIoeventfd    = 36
	CapTSCDeadline  = 72
	CapReadonlyMem  = 81
	CapImmediateRun = 136
)

// apiVersion has been 12 since Linux 2.6.22 (section 4.1).
const apiVersion = 12

// System is /dev/kvm. It holds nothing that needs closing.
type System struct {
	file      *os.File
	mmapSize  int
	xsaveSize int // bytes
	stateMSRs stateMSRs
	cpuidMu   sync.Mutex
	cpuid     cpuidTable // protected by cpuidMu; room for a call
}

// Open checks file, an open /dev/kvm. The caller closes it after the last use of
// the System; machines made from it live on.
func Open(file *os.File) (*System, error) {
	version, err := gokvm.GetAPIVersion(file.Fd())
	if err != nil {
		return nil, fmt.Errorf("kvm: get api version: %w: %w", err, ErrNotUsable)
	}
	if version != apiVersion {
		return nil, fmt.Errorf("kvm: api version is %d, not %d: %w", version, apiVersion, ErrNotUsable)
	}
	size, err := gokvm.GetVCPUMMmapSize(file.Fd())
	if err != nil {
		return nil, fmt.Errorf("kvm: get size of run area: %w", err)
	}
	s := &System{file: file, mmapSize: int(size)}
	if err := s.findXSAVESize(); err != nil {
		return nil, err
	}
	return s, nil
}

// Capability returns the value of a KVM_CAP_…; zero means that the host does
// not have it (section 4.4).
func (s *System) Capability(number int) int {
	v, err := gokvm.CheckExtension(s.file.Fd(), gokvm.Capability(number))
	if err != nil {
		return 0
	}
	return int(v)
}

// NewVM makes a machine. It works only in the process that makes it.
func (s *System) NewVM() (*VM, error) {
	var fd uintptr
	var err error
	// A signal, which Go sends itself to preempt, can interrupt the creation.
	for range 100 {
		if fd, err = gokvm.CreateVM(s.file.Fd()); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("kvm: create vm: %w", err)
	}
	unix.CloseOnExec(int(fd))
	return &VM{fd: fd, system: s}, nil
}

// VM is a machine.
type VM struct {
	fd        uintptr
	system    *System
	regions   []*gokvm.UserspaceMemoryRegion // on the heap, see the package comment
	ringBytes int                            // of each vCPU's dirty ring, zero: none
}

// Close gives up the descriptor. The machine goes when its vCPUs are closed
// too; on pvm hosts that takes milliseconds.
func (vm *VM) Close() error {
	if vm.fd == 0 {
		return nil
	}
	fd := vm.fd
	vm.fd = 0
	if err := unix.Close(int(fd)); err != nil {
		return fmt.Errorf("kvm: close vm: %w", err)
	}
	return nil
}

// Addresses of pages that VMX hosts need for themselves (sections 4.36 and
// 4.37), in the hole below 4 GiB where no memory slot is.
const (
	identityMapAddress = 0xfffb_c000
	tssAddress         = 0xfffb_d000
)

// CreateIRQChip makes the interrupt controllers in the kernel (section 4.24).
func (vm *VM) CreateIRQChip() error {
	if err := vm.setIdentityMap(identityMapAddress); err != nil {
		return err
	}
	if err := gokvm.SetTSSAddr(vm.fd, tssAddress); err != nil {
		return fmt.Errorf("kvm: set tss address: %w", err)
	}
	if err := gokvm.CreateIRQChip(vm.fd); err != nil {
		return fmt.Errorf("kvm: create irqchip: %w", err)
	}
	return nil
}

// NewVCPU makes a processor and maps its run area (section 4.7).
func (vm *VM) NewVCPU(id int) (*VCPU, error) {
	fd, err := gokvm.CreateVCPU(vm.fd, id)
	if err != nil {
		return nil, fmt.Errorf("kvm: create vcpu %d: %w", id, err)
	}
	unix.CloseOnExec(int(fd))
	run, err := unix.Mmap(int(fd), 0, vm.system.mmapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(int(fd))
		return nil, fmt.Errorf("kvm: map run area of vcpu %d: %w", id, err)
	}
	c := &VCPU{id: id, fd: fd, system: vm.system, run: run}
	if vm.ringBytes > 0 {
		if c.ring, err = mapDirtyRing(int(fd), vm.ringBytes); err != nil {
			c.Close()
			return nil, fmt.Errorf("kvm: map dirty ring of vcpu %d: %w", id, err)
		}
	}
	return c, nil
}

// VCPU is a processor. Run and the register calls belong to one thread;
// SetImmediateExit may be called from any.
type VCPU struct {
	id     int
	fd     uintptr
	system *System
	run    []byte // struct kvm_run
	xsave  xsaveArea
	ring   *DirtyRing // nil: none
}

// Close unmaps the run area and gives up the descriptor.
func (c *VCPU) Close() error {
	if c.run == nil {
		return nil
	}
	run := c.run
	c.run = nil
	if err := errors.Join(c.ring.unmap(), unix.Munmap(run), unix.Close(int(c.fd))); err != nil {
		return fmt.Errorf("kvm: close vcpu %d: %w", c.id, err)
	}
	return nil
}
