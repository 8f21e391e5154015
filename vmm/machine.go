package vmm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"thaw/internal/eventfd"
	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/snapshot/memimage"
	"thaw/virtio/mmio"
	"thaw/vmm/dirty"
	"thaw/vmm/pagetable"
	"thaw/vmm/serial"
)

// defaultConsoleLog is how much console output is kept, in bytes.
const defaultConsoleLog = 64 << 10

// Machine is a virtual machine. Methods may be called from any goroutine
// unless they say otherwise.
type Machine struct {
	cfg      Config
	mem      *guestmem.Memory
	system   *kvm.System
	vm       *kvm.VM
	vcpus    []*vcpu
	console  *serial.Log
	platform platform
	// registers holds the devices' register pages, one after the other.
	registers  []byte
	slots      []slot // of the virtio devices, in the order in which the guest finds them
	transports []*mmio.Transport
	devices    devices
	diskFiles  []*os.File // that came with an image or a save
	events     []*eventfd.FD
	uartLine   *eventfd.FD
	eventLine  *eventfd.FD // raises eventGSI
	ownLine    *eventfd.FD // raises generationGSI
	phases     phases

	// Of machines that were restored: the image that the memory is compared
	// with, and the guest's page tables in it; nil where they do not matter.
	image  *memimage.Image
	tables *pagetable.Tables
	at     []byte // the instant of the image, see State
	track  *dirty.Tracking
	// ahead makes pages that the guest is going to write. It ends before the first pause.
	ahead sync.WaitGroup
	// lost: a save has failed half-way, and nobody knows the image.
	lost bool
	// restored is the clock of what the machine was restored from or rolled back to,
	// while it has not run since: then the guest is to be told that its generation
	// has changed, on ownLine where its driver has taken that.
	restored *ClockState
	ownTaken bool

	mu     sync.Mutex
	wake   *sync.Cond // of mu
	goal   goal       // protected by mu, as is the rest
	parked int        // processors that hold still because of goal
	alive  int        // processors whose thread runs
	exit   *Exit
	ended  chan struct{} // closed when exit is set
}

// goal is what the processors are to do.
type goal int

const (
	goalRun goal = iota
	goalPause
	goalEnd
)

// New makes a machine that is ready to run. The caller must Close it.
func New(cfg Config) (*Machine, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.ConsoleLog == 0 {
		cfg.ConsoleLog = defaultConsoleLog
	}
	if cfg.Log == nil {
		cfg.Log = func(error) {}
	}
	m := &Machine{cfg: cfg, console: serial.NewLog(cfg.ConsoleLog), ended: make(chan struct{})}
	m.wake = sync.NewCond(&m.mu)
	if cfg.Shell {
		m.goal = goalPause // until it is restored and resumed
	}
	m.phases = startPhases()
	if err := m.build(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// Run starts the processors and returns when the machine has ended: by the
// guest, by Stop, or because ctx is done. It must be called once.
func (m *Machine) Run(ctx context.Context) Exit {
	m.mu.Lock()
	m.alive = len(m.vcpus)
	m.mu.Unlock()
	var threads sync.WaitGroup
	for _, c := range m.vcpus {
		threads.Go(func() {
			c.run()
			m.mu.Lock()
			m.alive--
			m.wake.Broadcast()
			m.mu.Unlock()
		})
	}
	select {
	case <-ctx.Done():
		m.end(Stopped, context.Cause(ctx).Error())
	case <-m.ended:
	}
	threads.Wait()
	for _, t := range m.transports {
		t.Reset()
	}
	exit := *m.exit
	exit.Console, _ = m.console.Bytes()
	if exit.Reason == TripleFault && bytes.Contains(m.console.Tail(panicSearch), []byte(panicMessage)) {
		exit.Reason = Panic
	}
	return exit
}

// A kernel without the pvpanic driver tells of its panic on the console only.
const (
	panicMessage = "Kernel panic - not syncing"
	panicSearch  = 16 << 10 // bytes of console output to look through
)

// mayRun holds c while the machine is paused and says whether it is to go on.
func (m *Machine) mayRun(c *vcpu) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Only this thread clears the flag, and looks at the goal after that: a stop
	// is then not lost. A pause may have come and gone before the thread began.
	c.kvm.SetImmediateExit(false)
	if m.goal == goalRun {
		return true
	}
	m.parked++
	m.wake.Broadcast()
	for m.goal == goalPause {
		if c.task == nil {
			m.wake.Wait()
			continue
		}
		f := c.task
		m.mu.Unlock()
		f()
		m.mu.Lock()
		c.task = nil
		m.wake.Broadcast()
	}
	m.parked--
	return m.goal == goalRun
}

// onThread has the thread of a parked processor call f, and returns when it has, or
// when the machine ends. Preconditions: paused.
func (m *Machine) onThread(c *vcpu, f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.task = f
	m.wake.Broadcast()
	for c.task != nil && m.goal == goalPause {
		m.wake.Wait()
	}
}

// ending says whether the machine is to end.
func (m *Machine) ending() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.goal == goalEnd
}

// end ends the machine; the first reason counts. It does not wait.
func (m *Machine) end(reason Reason, detail string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exit != nil {
		return
	}
	m.exit = &Exit{Reason: reason, Detail: detail}
	m.goal = goalEnd
	m.wake.Broadcast()
	close(m.ended)
	for _, c := range m.vcpus {
		c.stop()
	}
}

// Stop ends the machine; Run then returns.
func (m *Machine) Stop() { m.end(Stopped, "stopped by the daemon") }

// Pause returns when no processor runs and every device has answered what it
// took from its queues. It does nothing on a machine that has ended.
func (m *Machine) Pause() {
	m.ahead.Wait()
	m.mu.Lock()
	if m.goal != goalRun {
		m.mu.Unlock()
		return
	}
	m.goal = goalPause
	for _, c := range m.vcpus {
		c.stop()
	}
	for m.goal == goalPause && m.parked < m.alive {
		m.wake.Wait()
	}
	m.mu.Unlock()
	for _, t := range m.transports {
		t.Pause()
	}
}

// Resume ends a Pause, and lets a machine run that was restored or rolled back. A
// shell that is nothing yet stays as it is.
func (m *Machine) Resume() {
	if m.cfg.Shell && m.image == nil {
		return
	}
	for _, t := range m.transports {
		t.Resume()
	}
	if m.restored != nil {
		// A shell may have waited for this: guest time goes on from where it was saved,
		// not from where a clock has run to meanwhile.
		line := m.eventLine
		if m.ownTaken {
			line = m.ownLine
		}
		if err := errors.Join(m.setClockState(*m.restored), line.Signal()); err != nil {
			m.cfg.Log(err)
		}
		m.restored = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.goal == goalPause {
		m.goal = goalRun
		m.wake.Broadcast()
	}
}

// MemoryBytes is how much memory the machine has.
func (m *Machine) MemoryBytes() uint64 { return m.cfg.MemoryBytes }

// Console returns what is kept of the console output.
func (m *Machine) Console() []byte {
	b, _ := m.console.Bytes()
	return b
}

// Phases tells how long the steps of New took.
func (m *Machine) Phases() []Phase { return m.phases.list }

// Close gives up everything that New made. Preconditions: Run has returned or
// was never called.
func (m *Machine) Close() error {
	m.ahead.Wait()
	var errs []error
	for _, c := range m.vcpus {
		errs = append(errs, c.kvm.Close())
	}
	if m.vm != nil {
		errs = append(errs, m.vm.Close())
	}
	errs = append(errs, m.devices.close())
	closeFiles(m.diskFiles)
	if m.track != nil {
		m.track.Close()
	}
	if m.image != nil {
		errs = append(errs, m.image.Close())
	}
	for _, s := range m.slots {
		for _, k := range s.kicks {
			errs = append(errs, k.Close())
		}
	}
	for _, e := range m.events {
		errs = append(errs, e.Close())
	}
	if m.registers != nil {
		errs = append(errs, unix.Munmap(m.registers))
		m.registers = nil
	}
	if m.mem != nil {
		errs = append(errs, m.mem.Unmap())
	}
	return errors.Join(errs...)
}
