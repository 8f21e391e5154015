package vmm

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"thaw/internal/kvm"
	"thaw/virtio"
)

// machineState is what of a machine these tests save: all but its devices.
type machineState struct {
	vcpus []VCPUState
	chips ChipState
	clock ClockState
}

// saveAll saves a machine, in the order of order.go. Preconditions: paused.
func saveAll(t testing.TB, m *Machine) (s machineState) {
	t.Helper()
	for _, c := range m.vcpus {
		v, err := c.state()
		if err != nil {
			t.Fatal(err)
		}
		s.vcpus = append(s.vcpus, v)
	}
	var err error
	if s.chips, err = m.chipState(); err != nil {
		t.Fatal(err)
	}
	if s.clock, err = m.clockState(); err != nil {
		t.Fatal(err)
	}
	return s
}

// set restores a machine, in the order of order.go.
func (s *machineState) set(t testing.TB, m *Machine) {
	t.Helper()
	for i, c := range m.vcpus {
		if err := c.setState(s.vcpus[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.setChipState(s.chips); err != nil {
		t.Fatal(err)
	}
	if err := m.setClockState(s.clock); err != nil {
		t.Fatal(err)
	}
}

// Registers of the local APIC (Intel SDM volume 3, table "Local APIC Register
// Address Map").
const (
	lapicSpurious     = 0x0f0
	lapicTimer        = 0x320
	lapicInitialCount = 0x380
	lapicCurrentCount = 0x390
	lapicDivide       = 0x3e0
)

// excluded is what may differ between a state and the same state restored and
// saved again, and why. Nothing else may.
var excluded = []struct {
	name, why string
	clear     func(*machineState)
}{
	{"TSC", "counts on", func(s *machineState) { clearMSR(s, msrTSC) }},
	{"TSC deadline", "moves with the TSC; compared by itself", func(s *machineState) { clearMSR(s, msrTSCDeadline) }},
	{"local APIC's current count", "counts down while the timer is not in deadline mode", func(s *machineState) {
		for _, v := range s.vcpus {
			clear(v.LAPIC[lapicCurrentCount:][:4])
		}
	}},
	{"Hyper-V's reference counter", "counts on, where KVM offers it", func(s *machineState) { clearMSR(s, 0x4000_0020) }},
	{"Hyper-V's run time", "is that of the thread that asks, where KVM offers it", func(s *machineState) { clearMSR(s, 0x4000_0010) }},
	{"clock", "counts on", func(s *machineState) { s.clock = ClockState{} }},
}

func clearMSR(s *machineState, index uint32) {
	for _, v := range s.vcpus {
		for i := range v.MSRs {
			if v.MSRs[i].Index == index {
				v.MSRs[i].Value = 0
			}
		}
	}
}

func msr(t testing.TB, s VCPUState, index uint32) uint64 {
	t.Helper()
	i := slices.IndexFunc(s.MSRs, func(r kvm.MSR) bool { return r.Index == index })
	if i < 0 {
		t.Fatalf("state has no msr %#x", index)
	}
	return s.MSRs[i].Value
}

func setMSR(s *VCPUState, index uint32, value uint64) {
	for i := range s.MSRs {
		if s.MSRs[i].Index == index {
			s.MSRs[i].Value = value
		}
	}
}

// asmRegisters loads general registers with numbers that can be told apart.
var asmRegisters = []byte{
	0x48, 0xbb, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, // mov rbx, 0x1122334455667788
	0x49, 0xbf, 0xef, 0xcd, 0xab, 0x90, 0x78, 0x56, 0x34, 0x12, // mov r15, 0x1234567890abcdef
}

// pausedMachine returns a machine whose first processor spins with registers
// loaded, paused.
func pausedMachine(t *testing.T, cfg Config) *Machine {
	t.Helper()
	m := newMachine(t, cfg)
	run(t, m)
	for string(m.Console()) != "go" {
		time.Sleep(time.Millisecond)
	}
	m.Pause()
	return m
}

// TestStateSurvives saves a machine, sets what was saved in a new one over a
// copy of the memory, and saves that.
func TestStateSurvives(t *testing.T) {
	cfg := testConfig(t, join(asmRegisters, asmPrint("go"), asmSpin))
	cfg.VCPUs = 2 // the second one waits for its start-up IPI
	first := pausedMachine(t, cfg)
	began := time.Now()
	want := saveAll(t, first)
	t.Logf("save of %d processors, controllers and clock: %v the first time", cfg.VCPUs, time.Since(began))
	s := &want.vcpus[0]
	if s.Regs.RBX != 0x1122334455667788 || s.Regs.R15 != 0x1234567890abcdef {
		t.Errorf("rbx %#x, r15 %#x", s.Regs.RBX, s.Regs.R15)
	}
	if want.vcpus[1].MPState != kvm.MPUninitialized {
		t.Errorf("mp state of the second processor is %d", want.vcpus[1].MPState)
	}
	fillVectors(s.XSAVE)
	s.XCRs = []kvm.XCR{{Index: 0, Value: 7}}
	const hour = 3600 << 31 // cycles, nearly two hours at 2 GHz: it does not fire
	binary.LittleEndian.PutUint32(s.LAPIC[lapicSpurious:], 0x1ff)
	binary.LittleEndian.PutUint32(s.LAPIC[lapicTimer:], 2<<17|0x40) // TSC deadline, vector 0x40
	setMSR(s, msrTSCDeadline, msr(t, *s, msrTSC)+hour)
	setMSR(s, kvm.MSRKernelGSBase, 0x7000)
	want.chips.IOAPIC[24] = 0x31 // vector of the first line

	second := newMachine(t, emptyMemory(t, cfg))
	copyMemory(second, first)
	began = time.Now()
	want.set(t, second)
	set := time.Since(began)
	began = time.Now()
	got := saveAll(t, second)
	t.Logf("set: %v; save: %v", set, time.Since(began))
	ahead := int64(msr(t, got.vcpus[0], msrTSCDeadline) - msr(t, got.vcpus[0], msrTSC))
	if ahead > hour || ahead < hour-(20<<31) {
		t.Errorf("timer is %d cycles ahead, %d were saved", ahead, int64(hour))
	}
	if d := got.clock.Nanoseconds - want.clock.Nanoseconds; d > uint64(10*time.Second) {
		t.Errorf("clock went from %d to %d ns", want.clock.Nanoseconds, got.clock.Nanoseconds)
	}
	for _, e := range excluded {
		e.clear(&want)
		e.clear(&got)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("state differs after a restore:\n got %+v\nwant %+v", got, want)
	}
}

// fillVectors puts numbers into XMM and the upper halves of YMM registers, in
// XSAVE's standard format (Intel SDM volume 1, chapter 13).
func fillVectors(area []byte) {
	const xmm, header, ymm = 160, 512, 576
	for i := range 256 {
		area[xmm+i], area[ymm+i] = byte(i), byte(255-i)
	}
	binary.LittleEndian.PutUint64(area[header:], 7) // XSTATE_BV: x87, SSE, AVX
}

// TestTimerOfOneShot checks a local APIC timer that counts bus cycles: it goes
// on from its current count.
func TestTimerOfOneShot(t *testing.T) {
	m := newMachine(t, testConfig(t, asmReset))
	s := saveAll(t, m)
	le, regs := binary.LittleEndian, s.vcpus[0].LAPIC
	le.PutUint32(regs[lapicSpurious:], 0x1ff)
	le.PutUint32(regs[lapicTimer:], 0x40)
	le.PutUint32(regs[lapicDivide:], 0xb) // by one
	le.PutUint32(regs[lapicInitialCount:], math.MaxUint32)
	le.PutUint32(regs[lapicCurrentCount:], math.MaxUint32/2)
	s.set(t, m)
	if got := le.Uint32(saveAll(t, m).vcpus[0].LAPIC[lapicCurrentCount:]); got == 0 || got > math.MaxUint32/2 {
		t.Errorf("current count %#x, started at %#x", got, uint32(math.MaxUint32/2))
	}
}

// TestBadStates checks that what a hostile file says ends in a typed error.
func TestBadStates(t *testing.T) {
	m := newMachine(t, testConfig(t, asmReset))
	for name, change := range map[string]func(*machineState){
		"mp state":              func(s *machineState) { s.vcpus[0].MPState = 5 },
		"short local apic":      func(s *machineState) { s.vcpus[0].LAPIC = s.vcpus[0].LAPIC[1:] },
		"no local apic":         func(s *machineState) { s.vcpus[0].LAPIC = nil },
		"short xsave":           func(s *machineState) { s.vcpus[0].XSAVE = s.vcpus[0].XSAVE[:512] },
		"long xsave":            func(s *machineState) { s.vcpus[0].XSAVE = make([]byte, maxStateXSAVE+1) },
		"unknown vectors":       func(s *machineState) { s.vcpus[0].XSAVE[512+7] = 0x40 },
		"reserved mxcsr":        func(s *machineState) { s.vcpus[0].XSAVE[512], s.vcpus[0].XSAVE[24+3] = 3, 0xff },
		"xcr0 without x87":      func(s *machineState) { s.vcpus[0].XCRs = []kvm.XCR{{Value: 6}} },
		"too many xcrs":         func(s *machineState) { s.vcpus[0].XCRs = make([]kvm.XCR, kvm.MaxXCRs+1) },
		"long mode without pae": func(s *machineState) { s.vcpus[0].Sregs.CR4 = 0 },
		"unknown msr":           func(s *machineState) { s.vcpus[0].MSRs[0].Index = 0xdead },
		"msr twice":             func(s *machineState) { s.vcpus[0].MSRs[1].Index = s.vcpus[0].MSRs[0].Index },
		"too many msrs":         func(s *machineState) { s.vcpus[0].MSRs = make([]kvm.MSR, maxStateMSRs+1) },
		"deadline without tsc": func(s *machineState) {
			s.vcpus[0].MSRs = []kvm.MSR{{Index: msrTSCDeadline, Value: 1}}
		},
		"exception number": func(s *machineState) { s.vcpus[0].Events.E.Inject, s.vcpus[0].Events.E.Nr = 1, 77 },
		"unknown events":   func(s *machineState) { s.vcpus[0].Events.Flags = 1 << 31 },
		"debug registers":  func(s *machineState) { s.vcpus[0].DebugRegs.DR7 = 1 << 40 },
		"short pic":        func(s *machineState) { s.chips.PICSlave = nil },
		"long io apic":     func(s *machineState) { s.chips.IOAPIC = append(s.chips.IOAPIC, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := saveAll(t, m)
			change(&s)
			err := m.vcpus[0].setState(s.vcpus[0])
			if err == nil {
				err = m.setChipState(s.chips)
			}
			if !errors.Is(err, virtio.ErrState) {
				t.Errorf("err %v, want %v", err, virtio.ErrState)
			}
		})
	}
}

func TestMoveDeadline(t *testing.T) {
	for _, c := range []struct{ deadline, saved, now, want uint64 }{
		{1100, 1000, 5000, 5100},                         // the host went on
		{1100, 1000, 50, 150},                            // the host was restarted
		{1000, 1000, 5000, 5000},                         // due
		{900, 1000, 5000, 5000},                          // overdue
		{900, 1000, 0, 1},                                // zero would disarm it
		{1 << 62, 0, math.MaxUint64 - 1, math.MaxUint64}, // does not wrap
	} {
		if got := moveDeadline(c.deadline, c.saved, c.now); got != c.want {
			t.Errorf("deadline %d, saved at %d, now %d: %d, want %d", c.deadline, c.saved, c.now, got, c.want)
		}
	}
}

func TestPlanMSRs(t *testing.T) {
	saved := []kvm.MSR{{Index: 1, Value: 11}, {Index: msrTSCDeadline, Value: 200}, {Index: msrTSC, Value: 100}, {Index: kvm.MSRPVM, Value: 3}}
	for name, c := range map[string]struct {
		pvm  bool
		want []uint32
	}{
		"tsc comes first, deadline apart": {false, []uint32{msrTSC, 1, kvm.MSRPVM}},
		"tsc of a pvm host is not set":    {true, []uint32{1, kvm.MSRPVM}},
	} {
		p := planMSRs(saved, c.pvm)
		var got []uint32
		for _, r := range p.registers {
			got = append(got, r.Index)
		}
		if !slices.Equal(got, c.want) || p.deadline != 200 || p.tsc != 100 {
			t.Errorf("%s: %x, deadline %d, tsc %d", name, got, p.deadline, p.tsc)
		}
	}
	saved[1].Value = 0
	if p := planMSRs(saved, false); p.deadline != 0 || !slices.Contains(p.registers, kvm.MSR{Index: msrTSCDeadline}) {
		t.Errorf("a timer that is not armed must be disarmed: %+v", p)
	}
}
