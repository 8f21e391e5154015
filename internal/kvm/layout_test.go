package kvm

import (
	"testing"
	"unsafe"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

// TestLayout compares with what sizeof and offsetof of <linux/kvm.h> give on
// x86-64.
func TestLayout(t *testing.T) {
	var i irqfd
	var e ioeventfd
	for name, c := range map[string]struct{ got, want uintptr }{
		"struct kvm_irqfd":                      {unsafe.Sizeof(i), 32},
		"kvm_irqfd.fd":                          {unsafe.Offsetof(i.fd), 0},
		"kvm_irqfd.gsi":                         {unsafe.Offsetof(i.gsi), 4},
		"struct kvm_ioeventfd":                  {unsafe.Sizeof(e), 64},
		"kvm_ioeventfd.datamatch":               {unsafe.Offsetof(e.datamatch), 0},
		"kvm_ioeventfd.addr":                    {unsafe.Offsetof(e.addr), 8},
		"kvm_ioeventfd.len":                     {unsafe.Offsetof(e.length), 16},
		"kvm_ioeventfd.fd":                      {unsafe.Offsetof(e.fd), 20},
		"kvm_ioeventfd.flags":                   {unsafe.Offsetof(e.flags), 24},
		"kvm_run.immediate_exit":                {runImmediateExit, 1},
		"kvm_run.exit_reason":                   {runExitReason, 8},
		"kvm_run.io, kvm_run.mmio":              {runUnion, 32},
		"struct kvm_regs":                       {unsafe.Sizeof(Regs{}), 144},
		"struct kvm_sregs":                      {unsafe.Sizeof(Sregs{}), 312},
		"struct kvm_debugregs":                  {unsafe.Sizeof(DebugRegs{}), 128},
		"struct kvm_xcrs":                       {unsafe.Sizeof(gokvm.XCRS{}), 392},
		"struct kvm_vcpu_events":                {unsafe.Sizeof(Events{}), 64},
		"struct kvm_mp_state":                   {unsafe.Sizeof(gokvm.MPState{}), 4},
		"struct kvm_irqchip":                    {unsafe.Sizeof(gokvm.IRQChip{}), 520},
		"struct kvm_clock_data":                 {unsafe.Sizeof(gokvm.ClockData{}), 48},
		"struct kvm_msr_entry":                  {unsafe.Sizeof(MSR{}), 16},
		"struct kvm_pic_state":                  {PICSize, 16},
		"struct kvm_ioapic_state":               {IOAPICSize, 216},
		"struct kvm_lapic_state":                {LAPICSize, 1024},
		"struct kvm_enable_cap":                 {unsafe.Sizeof(enableCap{}), 104},
		"struct kvm_dirty_log":                  {unsafe.Sizeof(dirtyLog{}), 16},
		"struct kvm_clear_dirty_log":            {unsafe.Sizeof(clearDirtyLog{}), 24},
		"struct kvm_dirty_gfn":                  {ringEntrySize, 16},
		"struct kvm_stats_header":               {statHeaderSize, 24},
		"struct kvm_stats_desc":                 {statDescSize, 16},
		"struct kvm_xsave":                      {minXSAVESize, 4096},
		"kvm_sregs.gdt":                         {unsafe.Offsetof(Sregs{}.GDT), 192},
		"kvm_sregs.cr0":                         {unsafe.Offsetof(Sregs{}.CR0), 224},
		"kvm_sregs.apic_base":                   {unsafe.Offsetof(Sregs{}.ApicBase), 272},
		"kvm_sregs.interrupt_bitmap":            {unsafe.Offsetof(Sregs{}.InterruptBitmap), 280},
		"kvm_debugregs.dr6":                     {unsafe.Offsetof(DebugRegs{}.DR6), 32},
		"kvm_debugregs.flags":                   {unsafe.Offsetof(DebugRegs{}.Flags), 48},
		"kvm_xcrs.xcrs":                         {unsafe.Offsetof(gokvm.XCRS{}.Registers), 8},
		"kvm_vcpu_events.interrupt":             {unsafe.Offsetof(Events{}.I), 8},
		"kvm_vcpu_events.nmi":                   {unsafe.Offsetof(Events{}.N), 12},
		"kvm_vcpu_events.sipi_vector":           {unsafe.Offsetof(Events{}.SipiVector), 16},
		"kvm_vcpu_events.flags":                 {unsafe.Offsetof(Events{}.Flags), 20},
		"kvm_vcpu_events.smi":                   {unsafe.Offsetof(Events{}.S), 24},
		"kvm_vcpu_events.triple_fault":          {unsafe.Offsetof(Events{}.TripleFault), 28},
		"kvm_vcpu_events.exception_has_payload": {unsafe.Offsetof(Events{}.ExceptionHasPayload), 55},
		"kvm_vcpu_events.exception_payload":     {unsafe.Offsetof(Events{}.ExceptionPayload), 56},
		"kvm_irqchip.chip":                      {unsafe.Offsetof(gokvm.IRQChip{}.Chip), 8},
		"kvm_clock_data.clock":                  {unsafe.Offsetof(gokvm.ClockData{}.Clock), 0},
		"kvm_clock_data.flags":                  {unsafe.Offsetof(gokvm.ClockData{}.Flags), 8},
		"kvm_msr_entry.data":                    {unsafe.Offsetof(MSR{}.Value), 8},
		"kvm_enable_cap.args":                   {unsafe.Offsetof(enableCap{}.args), 8},
		"kvm_dirty_log.dirty_bitmap":            {unsafe.Offsetof(dirtyLog{}.bitmap), 8},
		"kvm_msrs.entries":                      {unsafe.Offsetof(msrBatch{}.entries), 8},
		"kvm_msr_list.indices":                  {unsafe.Offsetof(msrList{}.indices), 4},
		"kvm_dirty_gfn.flags":                   {ringEntryFlags, 0},
		"kvm_dirty_gfn.slot":                    {ringEntrySlot, 4},
		"kvm_dirty_gfn.offset":                  {ringEntryOffset, 8},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", name, c.got, c.want)
		}
	}
}
