package guestmem

import (
	"sync/atomic"
	"unsafe"
)

func loadAcquire16(p *uint16) uint16

func storeRelease16(p *uint16, v uint16)

// Fence orders all memory accesses before it with all after it, stores
// before loads included: what event index suppression needs between
// publishing an index and reading the other side's (virtio 1.3 §2.7.7.2).
func Fence()

// LoadAcquire16 reads the 16-bit field at b[off]. Preconditions: off is even
// and b starts on an even address. Panics where off+2 > len(b), like indexing.
func LoadAcquire16(b []byte, off int) uint16 {
	return loadAcquire16((*uint16)(unsafe.Pointer(&b[off : off+2][0])))
}

// StoreRelease16 writes the 16-bit field at b[off], after all earlier writes.
// Preconditions as for LoadAcquire16.
func StoreRelease16(b []byte, off int, v uint16) {
	storeRelease16((*uint16)(unsafe.Pointer(&b[off : off+2][0])), v)
}

// Store32 writes the 32-bit field at b[off] in one piece. Preconditions: off
// and the start of b are multiples of four.
func Store32(b []byte, off int, v uint32) {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b[off : off+4][0])), v)
}

// Load32 reads the 32-bit field at b[off] in one piece. Preconditions as for
// Store32.
func Load32(b []byte, off int) uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[off : off+4][0])))
}

// Touch writes the 32-bit field at b[off] as it is, whoever else writes it meanwhile: the page becomes the process's own.
// Preconditions as for Load32.
func Touch(b []byte, off int) {
	atomic.OrUint32((*uint32)(unsafe.Pointer(&b[off : off+4][0])), 0)
}
