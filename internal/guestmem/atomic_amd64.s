#include "textflag.h"

// Ring indices are 16 bits wide and sync/atomic has no such operations. A
// 32-bit store would write past avail_event, the last two bytes of the used
// ring. On amd64 plain loads acquire and plain stores release; being assembly
// keeps the compiler from caching or reordering them.

// func loadAcquire16(p *uint16) uint16
TEXT ·loadAcquire16(SB), NOSPLIT, $0-10
	MOVQ p+0(FP), AX
	MOVWLZX (AX), AX
	MOVW AX, ret+8(FP)
	RET

// func storeRelease16(p *uint16, v uint16)
TEXT ·storeRelease16(SB), NOSPLIT, $0-10
	MOVQ p+0(FP), AX
	MOVW v+8(FP), CX
	MOVW CX, (AX)
	RET

// func Fence()
TEXT ·Fence(SB), NOSPLIT, $0-0
	MFENCE
	RET
