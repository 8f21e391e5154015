#include "textflag.h"

// Offsets in type call, and its size.
#define call_number 0
#define call_args   8
#define call_want   48
#define call_text   56
#define call_length 64
#define call_size   80

// func clone3(args unsafe.Pointer, size uintptr, calls *call, n uintptr) (pid, errno uintptr)
//
// The child may share memory, and the place that SP points to, with the thread that makes it,
// which goes on at once: it has nothing but registers.
TEXT ·clone3(SB), NOSPLIT, $0-48
	MOVQ args+0(FP), DI
	MOVQ size+8(FP), SI
	MOVQ calls+16(FP), R12
	MOVQ n+24(FP), R13
	MOVQ $435, AX // clone3
	SYSCALL
	TESTQ AX, AX
	JZ   next
	MOVQ AX, pid+32(FP)
	MOVQ $0, errno+40(FP)
	JGT  parent
	MOVQ $0, pid+32(FP)
	NEGQ AX
	MOVQ AX, errno+40(FP)
parent:
	RET

next:
	TESTQ R13, R13
	JZ   end
	MOVQ call_number(R12), AX
	MOVQ (call_args+0)(R12), DI
	MOVQ (call_args+8)(R12), SI
	MOVQ (call_args+16)(R12), DX
	MOVQ (call_args+24)(R12), R10
	MOVQ (call_args+32)(R12), R8
	XORL R9, R9
	SYSCALL
	CMPQ AX, call_want(R12)
	JNE  failed
	ADDQ $call_size, R12
	DECQ R13
	JMP  next

failed: // "…: error 000\n" gets the number, if there is one
	MOVQ call_text(R12), R14
	MOVQ call_length(R12), R15
	NEGQ AX
	JLE  write
	MOVQ $10, R10
	LEAQ -2(R14)(R15*1), R11
digit:
	TESTQ AX, AX
	JZ   write
	XORL DX, DX
	DIVQ R10
	ADDB DX, (R11)
	DECQ R11
	JMP  digit
write:
	MOVQ $1, AX
	MOVQ $2, DI
	MOVQ R14, SI
	MOVQ R15, DX
	SYSCALL
end:
	MOVQ $231, AX // exit_group
	MOVQ $1, DI
	SYSCALL
	JMP  end
