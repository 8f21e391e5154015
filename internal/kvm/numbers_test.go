package kvm

import "testing"

// TestRequestNumbers compares with the values that <linux/kvm.h> gives on
// x86-64.
func TestRequestNumbers(t *testing.T) {
	for name, c := range map[string]struct{ got, want uintptr }{
		"KVM_RUN":                        {requestRun, 0xae80},
		"KVM_GET_MSR_INDEX_LIST":         {requestGetMSRList, 0xc004ae02},
		"KVM_GET_MSR_FEATURE_INDEX_LIST": {requestGetFeatureMSRs, 0xc004ae0a},
		"KVM_GET_DIRTY_LOG":              {requestGetDirtyLog, 0x4010ae42},
		"KVM_CLEAR_DIRTY_LOG":            {requestClearDirtyLog, 0xc018aec0},
		"KVM_SET_IDENTITY_MAP_ADDR":      {requestSetIdentityMap, 0x4008ae48},
		"KVM_GET_IRQCHIP":                {requestGetIRQChip, 0xc208ae62},
		"KVM_SET_IRQCHIP":                {requestSetIRQChip, 0x8208ae63},
		"KVM_IRQFD":                      {requestIrqfd, 0x4020ae76},
		"KVM_IOEVENTFD":                  {requestIoeventfd, 0x4040ae79},
		"KVM_SET_CLOCK":                  {requestSetClock, 0x4030ae7b},
		"KVM_GET_CLOCK":                  {requestGetClock, 0x8030ae7c},
		"KVM_GET_REGS":                   {requestGetRegs, 0x8090ae81},
		"KVM_SET_REGS":                   {requestSetRegs, 0x4090ae82},
		"KVM_GET_SREGS":                  {requestGetSregs, 0x8138ae83},
		"KVM_SET_SREGS":                  {requestSetSregs, 0x4138ae84},
		"KVM_GET_MSRS":                   {requestGetMSRs, 0xc008ae88},
		"KVM_SET_MSRS":                   {requestSetMSRs, 0x4008ae89},
		"KVM_GET_LAPIC":                  {requestGetLAPIC, 0x8400ae8e},
		"KVM_SET_LAPIC":                  {requestSetLAPIC, 0x4400ae8f},
		"KVM_GET_MP_STATE":               {requestGetMPState, 0x8004ae98},
		"KVM_SET_MP_STATE":               {requestSetMPState, 0x4004ae99},
		"KVM_GET_VCPU_EVENTS":            {requestGetEvents, 0x8040ae9f},
		"KVM_SET_VCPU_EVENTS":            {requestSetEvents, 0x4040aea0},
		"KVM_GET_DEBUGREGS":              {requestGetDebugRegs, 0x8080aea1},
		"KVM_SET_DEBUGREGS":              {requestSetDebugRegs, 0x4080aea2},
		"KVM_GET_TSC_KHZ":                {requestGetTSCKHz, 0xaea3},
		"KVM_ENABLE_CAP":                 {requestEnableCap, 0x4068aea3},
		"KVM_GET_XSAVE":                  {requestGetXSAVE, 0x9000aea4},
		"KVM_SET_XSAVE":                  {requestSetXSAVE, 0x5000aea5},
		"KVM_GET_XCRS":                   {requestGetXCRs, 0x8188aea6},
		"KVM_SET_XCRS":                   {requestSetXCRs, 0x4188aea7},
		"KVM_KVMCLOCK_CTRL":              {requestKVMClockCtrl, 0xaead},
		"KVM_RESET_DIRTY_RINGS":          {requestResetRings, 0xaec7},
		"KVM_GET_STATS_FD":               {requestGetStatsFD, 0xaece},
		"KVM_GET_XSAVE2":                 {requestGetXSAVE2, 0x9000aecf},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", name, c.got, c.want)
		}
	}
}
