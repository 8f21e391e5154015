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
//	run ──▶ KVM_RUN ──exit──▶ handle ──▶ run
//	 │         │ signal: EINTR
//	 │         ▼
//	 └──▶ park (while the machine is to be paused) ──▶ run, or end
type vcpu struct {
	m    *Machine
	id   int
	kvm  *kvm.VCPU
	tid  atomic.Int32 // of its thread, zero before it runs
	exit exitCounts
	// open says that KVM has yet to complete an exit that was handled. Used by
	// the thread only.
	open bool
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
		interrupted, err := c.kvm.Run()
		c.open = false
		if err != nil {
			c.m.end(Internal, err.Error())
			return
		}
		if interrupted {
			continue
		}
		c.open = true
		if err := c.handle(); err != nil {
			c.m.end(Internal, err.Error())
			return
		}
	}
}

// settle has KVM complete an exit that was handled: until the next KVM_RUN, the
// registers are those from before it (order.go). immediate_exit keeps the guest
// from running.
func (c *vcpu) settle() {
	if !c.open {
		return
	}
	c.open = false
	c.kvm.SetImmediateExit(true)
	if interrupted, err := c.kvm.Run(); err != nil || !interrupted {
		c.m.cfg.Log(fmt.Errorf("vmm: vcpu %d: settle an exit: interrupted %v: %w", c.id, interrupted, err))
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
	const (
		cr0 = 0x8005_0033 // paging, write protect, numeric error, protected mode
		pae = 1 << 5
		lme = 1 << 8
		lma = 1 << 10
	)
	s.CR0, s.CR3, s.CR4, s.EFER = cr0, e.PageTables, pae, lme|lma
	s.GDT.Base, s.GDT.Limit = e.GDT, 4*8-1
	s.IDT.Base, s.IDT.Limit = 0, 0
	code := gokvm.Segment{Limit: 0xffff_ffff, Selector: 0x10, Typ: 11, Present: 1, S: 1, L: 1, G: 1}
	data := gokvm.Segment{Limit: 0xffff_ffff, Selector: 0x18, Typ: 3, Present: 1, DB: 1, S: 1, G: 1}
	s.CS = code
	s.DS, s.ES, s.FS, s.GS, s.SS = data, data, data, data, data
	if err := c.kvm.SetSregs(s); err != nil {
		return err
	}
	const reserved = 2 // bit 1 of RFLAGS is always set
	return c.kvm.SetRegs(gokvm.Regs{RIP: e.RIP, RSI: e.RSI, RFLAGS: reserved})
}
