package vmm

import (
	"math/bits"
	"slices"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

// CPUID leaves that depend on the machine rather than on the host, Intel SDM
// volume 2 "CPUID" and AMD APM volume 3 appendix E.
const (
	leafFeatures    = 0x1
	leafTopology    = 0xb
	leafTopologyV2  = 0x1f
	leafAMDSizes    = 0x8000_0008
	leafAMDTopology = 0x8000_001e
	leafAMDTopoV2   = 0x8000_0026

	featureHTT         = 1 << 28 // edx of leaf 1
	featureTSCDeadline = 1 << 24 // ecx of leaf 1
	featureHypervisor  = 1 << 31 // ecx of leaf 1; KVM leaves it to the VMM

	levelSMT  = 1 << 8
	levelCore = 2 << 8
)

// vcpuCPUID adapts what the host supports to processor id of count: each is a
// core of one socket, without hyper-threads, and its APIC id is its number.
func vcpuCPUID(supported []gokvm.CPUIDEntry2, id, count int, tscDeadline bool) []gokvm.CPUIDEntry2 {
	apicBits := uint32(bits.Len(uint(count - 1)))
	// Topology leaves of the host would describe the host: left out, but for
	// the one that is made anew.
	entries := slices.DeleteFunc(slices.Clone(supported), func(e gokvm.CPUIDEntry2) bool {
		return e.Function == leafTopology || e.Function == leafTopologyV2 || e.Function == leafAMDTopoV2
	})
	for i := range entries {
		e := &entries[i]
		switch e.Function {
		case leafFeatures:
			e.Ebx = e.Ebx&0xffff | uint32(count)<<16 | uint32(id)<<24
			e.Edx &^= featureHTT
			if count > 1 {
				e.Edx |= featureHTT
			}
			e.Ecx = e.Ecx&^featureTSCDeadline | featureHypervisor
			if tscDeadline {
				e.Ecx |= featureTSCDeadline
			}
		case leafAMDSizes:
			e.Ecx = e.Ecx&^0xf0ff | apicBits<<12 | uint32(count-1)
		case leafAMDTopology:
			e.Eax, e.Ebx, e.Ecx = uint32(id), uint32(id), 0
		}
	}
	const indexed = 1 // KVM_CPUID_FLAG_SIGNIFCANT_INDEX
	return append(entries,
		gokvm.CPUIDEntry2{Function: leafTopology, Index: 0, Flags: indexed, Eax: 0, Ebx: 1, Ecx: levelSMT, Edx: uint32(id)},
		gokvm.CPUIDEntry2{Function: leafTopology, Index: 1, Flags: indexed, Eax: apicBits, Ebx: uint32(count), Ecx: levelCore | 1, Edx: uint32(id)},
		gokvm.CPUIDEntry2{Function: leafTopology, Index: 2, Flags: indexed, Ecx: 2, Edx: uint32(id)},
	)
}
