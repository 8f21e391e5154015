package vmm

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
	"golang.org/x/sys/unix"

	"thaw/internal/kvm"
	"thaw/vmm/boot"
)

// vcpu is one processor and the thread that runs it.
//
//	┌──▶ KVM_RUN ──exit──▶ handle ──┐
//	│      │ ▲                       │
//	│      │ └───────────────────────┘
//	│      │ immediate_exit or a signal: EINTR
//	│      ▼
//	└─ park, while the machine is to be paused ──▶ end
type vcpu struct {
	m    *Machine
	id   int
	kvm  *kvm.VCPU
	tid  atomic.Int32 // of its thread, zero before it runs
	exit exitCounts
	task func() // to be run by the thread while it is parked; protected by m.mu
}

// exitCounts counts a processor's exits to user space.
type exitCounts struct {
	PortIO, MMIORead, MMIOWrite, Other atomic.Uint64
}

// stop brings the thread out of KVM_RUN. The signal is the one that Go's
// runtime preempts with: its handler is in place and does nothing harmful.
// immediate_exit alone does not reach a running processor, a signal alone is
// lost if it comes just before KVM_RUN.
func (c *vcpu) stop() {
	c.kvm.SetImmediateExit(true)
	if tid := c.tid.Load(); tid != 0 {
		// ESRCH: the thread has ended, which is what we want.
		_ = unix.Tgkill(os.Getpid(), int(tid), unix.SIGURG)
	}
}

// run is the thread of the processor, until the machine ends.
func (c *vcpu) run() {
	// Never unlocked: the thread goes with the processor.
	runtime.LockOSThread()
	c.tid.Store(int32(unix.Gettid()))
	for c.m.mayRun(c) {
		if err := c.runOn(); err != nil {
			c.m.end(Internal, err.Error())
			return
		}
	}
}

// runOn runs the processor until it is interrupted. An exit that was handled is
// completed by KVM only when the processor is run again (order.go), so it always
// is: with immediate_exit set nothing else happens then.
func (c *vcpu) runOn() error {
	for {
		interrupted, err := c.kvm.Run()
		if err != nil || interrupted {
			return err
		}
		if err := c.handle(); err != nil {
			return err
		}
	}
}

// handle serves one exit.
func (c *vcpu) handle() error {
	switch reason := c.kvm.ExitReason(); reason {
	case kvm.ExitIO:
		c.exit.PortIO.Add(1)
		io, err := c.kvm.PortIO()
		if err != nil {
			return err
		}
		for d := io.Data; len(d) > 0; d = d[io.Size:] {
			if io.In {
				c.m.platform.in(io.Port, d[:io.Size])
			} else {
				c.m.platform.out(io.Port, d[:io.Size])
			}
		}
	case kvm.ExitMMIO:
		a := c.kvm.MMIO()
		if a.Write {
			c.exit.MMIOWrite.Add(1)
			c.m.writeMMIO(a.Address, a.Data)
		} else {
			c.exit.MMIORead.Add(1)
			c.m.readMMIO(a.Address, a.Data)
		}
	case kvm.ExitShutdown:
		c.m.end(TripleFault, c.kvm.Describe())
	case kvm.ExitDirtyRingFull:
		c.exit.Other.Add(1)
		return c.m.track.RingFull(c.id)
	case kvm.ExitHalt, kvm.ExitIntr:
		c.exit.Other.Add(1)
	default:
		return fmt.Errorf("vmm: vcpu %d cannot go on: %s", c.id, c.kvm.Describe())
	}
	return nil
}

// setBootState puts the first processor into 64-bit mode at the kernel's
// entry (boot.rst, "64-bit Boot Protocol"). The others wait for their
// start-up IPI.
func (c *vcpu) setBootState(e boot.Entry) error {
	s, err := c.kvm.Sregs()
	if err != nil {
		return err
	}
	setFlat64(&s, e.PageTables)
	s.GDT.Base, s.GDT.Limit = e.GDT, 4*8-1
	s.IDT.Base, s.IDT.Limit = 0, 0
	if err := c.kvm.SetSregs(s); err != nil {
		return err
	}
	const reserved = 2 // bit 1 of RFLAGS is always set
	return c.kvm.SetRegs(gokvm.Regs{RIP: e.RIP, RSI: e.RSI, RFLAGS: reserved})
}

// setFlat64 sets 64-bit mode on the given page tables, with segments that are the
// whole address space.
func setFlat64(s *kvm.Sregs, tables uint64) {
	const (
		cr0 = 0x8005_0033 // paging, write protect, numeric error, protected mode
		pae = 1 << 5
		lme = 1 << 8
		lma = 1 << 10
	)
	s.CR0, s.CR3, s.CR4, s.EFER = cr0, tables, pae, lme|lma
	code := gokvm.Segment{Limit: 0xffff_ffff, Selector: 0x10, Typ: 11, Present: 1, S: 1, L: 1, G: 1}
	data := gokvm.Segment{Limit: 0xffff_ffff, Selector: 0x18, Typ: 3, Present: 1, DB: 1, S: 1, G: 1}
	s.CS = code
	s.DS, s.ES, s.FS, s.GS, s.SS = data, data, data, data, data
}
