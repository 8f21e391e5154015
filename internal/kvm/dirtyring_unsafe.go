package kvm

import (
	"sync/atomic"
	"unsafe"
)

// loadFlags pairs with the kernel's release store in kvm_dirty_gfn_set_dirtied:
// what is dirty has its slot and page written. Preconditions: entry is aligned,
// as the ring's are.
func loadFlags(entry []byte) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&entry[ringEntryFlags])))
}

// storeFlags pairs with the acquire load in kvm_dirty_gfn_harvested: KVM
// overwrites the entry only after we have read it.
func storeFlags(entry []byte, flags uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&entry[ringEntryFlags])), flags)
}
