package kvm

import (
	"errors"
	"slices"
	"testing"

	"thaw/internal/kvmtest"
)

// writePages is a guest that writes to pages 16 and 32, says so on a port, then
// writes to page 48 and says so again.
var writePages = []byte{
	0xc6, 0x04, 0x25, 0x00, 0x00, 0x01, 0x00, 0x01, // mov byte [0x10000], 1
	0xc6, 0x04, 0x25, 0x00, 0x00, 0x02, 0x00, 0x01, // mov byte [0x20000], 1
	0xe6, 0x80, // out 0x80, al
	0xc6, 0x04, 0x25, 0x00, 0x00, 0x03, 0x00, 0x01, // mov byte [0x30000], 1
	0xe6, 0x80, // out 0x80, al
	0xf4, // hlt
}

// data are the pages that the guest writes; its own page tables' accessed bits
// are dirty too.
func data(pages []uint64) []uint64 {
	return slices.DeleteFunc(pages, func(p uint64) bool { return p < 16 })
}

func TestDirtyLog(t *testing.T) {
	r := newRig(t, nil)
	r.start(t, writePages)
	if err := r.vm.SetDirtyLog(0, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]uint64{{16, 32}, {48}} {
		r.runToPort(t)
		bitmap := make([]uint64, rigMemory/pageSize/64)
		if err := r.vm.DirtyLog(0, bitmap); err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for i := range uint64(rigMemory / pageSize) {
			if bitmap[i/64]>>(i%64)&1 != 0 {
				got = append(got, i)
			}
		}
		if got = data(got); !slices.Equal(got, want) {
			t.Errorf("dirty pages %v, want %v", got, want)
		}
	}
	if err := r.vm.DirtyLog(0, make([]uint64, 7)); !errors.Is(err, ErrSize) {
		t.Errorf("short bitmap: %v", err)
	}
	if err := r.vm.SetDirtyLog(5, true); !errors.Is(err, ErrSize) {
		t.Errorf("unknown slot: %v", err)
	}
	if err := r.vm.SetDirtyLog(0, false); err != nil {
		t.Error(err)
	}
}

func TestDirtyRing(t *testing.T) {
	r := newRig(t, func(vm *VM) {
		if vm.system.DirtyRingLimit() == 0 {
			kvmtest.Unavailable(t, "kvm has no dirty ring")
		}
		if err := vm.EnableDirtyRing(16 << 10); err != nil {
			t.Fatal(err)
		}
	})
	r.start(t, writePages)
	if err := r.vm.SetDirtyLog(0, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]uint64{{16, 32}, {48}} {
		r.runToPort(t)
		var got []uint64
		n := r.vcpu.DirtyRing().Harvest(func(slot uint32, page uint64) {
			if slot == 0 {
				got = append(got, page)
			}
		})
		reset, err := r.vm.ResetDirtyRings()
		if err != nil || reset != n {
			t.Errorf("harvested %d, reset %d, %v", n, reset, err)
		}
		slices.Sort(got)
		if got = data(got); !slices.Equal(got, want) {
			t.Errorf("dirty pages %v, want %v", got, want)
		}
	}
}
