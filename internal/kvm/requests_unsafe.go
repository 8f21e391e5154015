package kvm

import (
	"unsafe"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

// Requests that gokvm lacks or whose arguments it keeps on the stack, with
// their sections.
var (
	requestRun            = gokvm.IIO(0x80)                                          // KVM_RUN, 4.10
	requestGetMSRList     = gokvm.IIOWR(0x02, unsafe.Sizeof(uint32(0)))              // KVM_GET_MSR_INDEX_LIST, 4.3
	requestGetFeatureMSRs = gokvm.IIOWR(0x0a, unsafe.Sizeof(uint32(0)))              // KVM_GET_MSR_FEATURE_INDEX_LIST, 4.3
	requestGetCPUID       = gokvm.IIOWR(0x05, unsafe.Offsetof(cpuidTable{}.entries)) // KVM_GET_SUPPORTED_CPUID, 4.46
	requestSetCPUID       = gokvm.IIOW(0x90, unsafe.Offsetof(cpuidTable{}.entries))  // KVM_SET_CPUID2, 4.20
	requestClearDirtyLog  = gokvm.IIOWR(0xc0, unsafe.Sizeof(clearDirtyLog{}))        // KVM_CLEAR_DIRTY_LOG, 4.117
	requestGetDirtyLog    = gokvm.IIOW(0x42, unsafe.Sizeof(dirtyLog{}))              // KVM_GET_DIRTY_LOG, 4.8
	requestSetIdentityMap = gokvm.IIOW(0x48, unsafe.Sizeof(uint64(0)))               // KVM_SET_IDENTITY_MAP_ADDR, 4.36
	requestGetIRQChip     = gokvm.IIOWR(0x62, unsafe.Sizeof(gokvm.IRQChip{}))        // KVM_GET_IRQCHIP, 4.26
	requestSetIRQChip     = gokvm.IIOR(0x63, unsafe.Sizeof(gokvm.IRQChip{}))         // KVM_SET_IRQCHIP, 4.27
	requestIrqfd          = gokvm.IIOW(0x76, unsafe.Sizeof(irqfd{}))                 // KVM_IRQFD, 4.75
	requestIoeventfd      = gokvm.IIOW(0x79, unsafe.Sizeof(ioeventfd{}))             // KVM_IOEVENTFD, 4.59
	requestSetClock       = gokvm.IIOW(0x7b, unsafe.Sizeof(gokvm.ClockData{}))       // KVM_SET_CLOCK, 4.30
	requestGetClock       = gokvm.IIOR(0x7c, unsafe.Sizeof(gokvm.ClockData{}))       // KVM_GET_CLOCK, 4.29
	requestGetRegs        = gokvm.IIOR(0x81, unsafe.Sizeof(Regs{}))                  // KVM_GET_REGS, 4.11
	requestSetRegs        = gokvm.IIOW(0x82, unsafe.Sizeof(Regs{}))                  // KVM_SET_REGS, 4.12
	requestGetSregs       = gokvm.IIOR(0x83, unsafe.Sizeof(Sregs{}))                 // KVM_GET_SREGS, 4.13
	requestSetSregs       = gokvm.IIOW(0x84, unsafe.Sizeof(Sregs{}))                 // KVM_SET_SREGS, 4.14
	requestGetMSRs        = gokvm.IIOWR(0x88, unsafe.Offsetof(msrBatch{}.entries))   // KVM_GET_MSRS, 4.18
	requestSetMSRs        = gokvm.IIOW(0x89, unsafe.Offsetof(msrBatch{}.entries))    // KVM_SET_MSRS, 4.19
	requestGetLAPIC       = gokvm.IIOR(0x8e, LAPICSize)                              // KVM_GET_LAPIC, 4.57
	requestSetLAPIC       = gokvm.IIOW(0x8f, LAPICSize)                              // KVM_SET_LAPIC, 4.58
	requestGetMPState     = gokvm.IIOR(0x98, unsafe.Sizeof(gokvm.MPState{}))         // KVM_GET_MP_STATE, 4.38
	requestSetMPState     = gokvm.IIOW(0x99, unsafe.Sizeof(gokvm.MPState{}))         // KVM_SET_MP_STATE, 4.39
	requestGetEvents      = gokvm.IIOR(0x9f, unsafe.Sizeof(Events{}))                // KVM_GET_VCPU_EVENTS, 4.31
	requestSetEvents      = gokvm.IIOW(0xa0, unsafe.Sizeof(Events{}))                // KVM_SET_VCPU_EVENTS, 4.32
	requestGetDebugRegs   = gokvm.IIOR(0xa1, unsafe.Sizeof(DebugRegs{}))             // KVM_GET_DEBUGREGS, 4.33
	requestSetDebugRegs   = gokvm.IIOW(0xa2, unsafe.Sizeof(DebugRegs{}))             // KVM_SET_DEBUGREGS, 4.34
	requestGetTSCKHz      = gokvm.IIO(0xa3)                                          // KVM_GET_TSC_KHZ, 4.56
	requestEnableCap      = gokvm.IIOW(0xa3, unsafe.Sizeof(enableCap{}))             // KVM_ENABLE_CAP, 4.37
	requestGetXSAVE       = gokvm.IIOR(0xa4, minXSAVESize)                           // KVM_GET_XSAVE, 4.42
	requestSetXSAVE       = gokvm.IIOW(0xa5, minXSAVESize)                           // KVM_SET_XSAVE, 4.43
	requestGetXCRs        = gokvm.IIOR(0xa6, unsafe.Sizeof(gokvm.XCRS{}))            // KVM_GET_XCRS, 4.44
	requestSetXCRs        = gokvm.IIOW(0xa7, unsafe.Sizeof(gokvm.XCRS{}))            // KVM_SET_XCRS, 4.45
	requestKVMClockCtrl   = gokvm.IIO(0xad)                                          // KVM_KVMCLOCK_CTRL, 4.60
	requestResetRings     = gokvm.IIO(0xc7)                                          // KVM_RESET_DIRTY_RINGS, 8.29
	requestGetStatsFD     = gokvm.IIO(0xce)                                          // KVM_GET_STATS_FD, 4.133
	requestGetXSAVE2      = gokvm.IIOR(0xcf, minXSAVESize)                           // KVM_GET_XSAVE2, 4.134
)
