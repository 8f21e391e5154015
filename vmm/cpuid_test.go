package vmm

import (
	"testing"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

func TestCPUIDOfEachProcessor(t *testing.T) {
	host := []gokvm.CPUIDEntry2{
		{Function: leafFeatures, Ebx: 0x0710_0800, Ecx: 1, Edx: featureHTT},
		{Function: leafTopology, Index: 0, Eax: 1, Ebx: 2},
		{Function: leafTopologyV2, Eax: 9},
		{Function: leafAMDSizes, Ecx: 0x400f},
		{Function: leafAMDTopology, Eax: 7, Ebx: 0x101},
		{Function: leafAMDTopoV2, Eax: 3},
		{Function: 0x4000_0000, Eax: 0x4000_0001},
	}
	for id := range 4 {
		entries := vcpuCPUID(host, id, 4, true)
		find := func(function, index uint32) *gokvm.CPUIDEntry2 {
			for i, e := range entries {
				if e.Function == function && e.Index == index {
					return &entries[i]
				}
			}
			return nil
		}
		f := find(leafFeatures, 0)
		if f.Ebx>>24 != uint32(id) || f.Ebx>>16&0xff != 4 || f.Ebx&0xffff != 0x0800 {
			t.Errorf("vcpu %d: leaf 1 ebx %#x", id, f.Ebx)
		}
		if f.Ecx&featureHypervisor == 0 || f.Ecx&featureTSCDeadline == 0 || f.Edx&featureHTT == 0 {
			t.Errorf("vcpu %d: features %#x %#x", id, f.Ecx, f.Edx)
		}
		if e := find(leafTopology, 1); e == nil || e.Ebx != 4 || e.Eax != 2 || e.Edx != uint32(id) {
			t.Errorf("vcpu %d: topology %+v", id, e)
		}
		if e := find(leafAMDTopology, 0); e.Eax != uint32(id) {
			t.Errorf("vcpu %d: extended apic id %d", id, e.Eax)
		}
		if e := find(leafAMDSizes, 0); e.Ecx&0xff != 3 || e.Ecx>>12&0xf != 2 {
			t.Errorf("vcpu %d: sizes %#x", id, e.Ecx)
		}
		if find(leafTopologyV2, 0) != nil || find(leafAMDTopoV2, 0) != nil {
			t.Errorf("vcpu %d: the host's topology is left", id)
		}
		if find(0x4000_0000, 0) == nil {
			t.Errorf("vcpu %d: no hypervisor leaf", id)
		}
	}
	if one := vcpuCPUID(host, 0, 1, false)[0]; one.Edx&featureHTT != 0 || one.Ecx&featureTSCDeadline != 0 {
		t.Errorf("single vcpu: features %#x %#x", one.Ecx, one.Edx)
	}
}
