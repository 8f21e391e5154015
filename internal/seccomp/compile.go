package seccomp

import (
	"fmt"
	"math"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data (linux/seccomp.h) on a little-endian machine.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// x32 is the bit in the number of an x32 call (__X32_SYSCALL_BIT). Number -1,
// which a tracer writes to skip a call, has it as well.
const x32 = 0x4000_0000

// Compile translates the policy into the kernel's filter language.
//
//	        instruction set is ours? ──no──▶ kill
//	        A := number
//	        x32? ──yes──▶ unlisted, or ENOSYS if that is to allow
//	rule 1: A = number? ──no──▶ rule 2
//	        │ alternative 1: A := argument & mask; wrong? ──▶ alternative 2
//	        │                allow
//	        │ …
//	        │ refused
//	rule 2: …
//	        unlisted
//
// Each rule ends inside its own block, so that A is the call's number at the
// start of every rule, and no conditional jump is longer than one alternative, or
// than the values that one argument may have.
func (p *Policy) Compile() ([]bpf.RawInstruction, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	foreign := p.Unlisted
	if foreign == Allow {
		foreign = Errno(unix.ENOSYS) // what a kernel without x32 says
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AUDIT_ARCH_X86_64, SkipTrue: 1},
		ret(Kill),
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: x32, SkipFalse: 1},
		ret(foreign),
	}
	for _, r := range p.Rules {
		block := p.block(r.Allow)
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(r.Number), SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(block))},
		)
		program = append(program, block...)
	}
	program = append(program, ret(p.Unlisted))
	if len(program) > unix.BPF_MAXINSNS {
		return nil, fmt.Errorf("seccomp: filter has %d instructions, most is %d", len(program), unix.BPF_MAXINSNS)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("seccomp: assemble: %w", err)
	}
	return raw, nil
}

func ret(a Action) bpf.Instruction { return bpf.RetConstant{Val: uint32(a)} }

// block decides one call.
func (p *Policy) block(w When) []bpf.Instruction {
	if code := p.oneOf(w); code != nil {
		return code
	}
	var block []bpf.Instruction
	for _, conditions := range w {
		if len(conditions) == 0 {
			return append(block, ret(Allow)) // no later alternative can matter
		}
		block = append(block, alternative(conditions)...)
	}
	return append(block, ret(p.Refused))
}

// mostValues is how many values oneOf takes: no jump is longer than 255 instructions.
const mostValues = 200

// oneOf is block for alternatives that compare one argument with values: the argument is loaded once. Nil: they are others, or
// the values do not have the same upper half.
func (p *Policy) oneOf(w When) []bpf.Instruction {
	if len(w) < 2 || len(w) > mostValues || len(w[0]) != 1 {
		return nil
	}
	first := w[0][0]
	for _, conditions := range w {
		if len(conditions) != 1 {
			return nil
		}
		if c := conditions[0]; c.Mask != math.MaxUint64 || c.Arg != first.Arg || c.Value>>32 != first.Value>>32 {
			return nil
		}
	}
	low := uint32(offArgs + 8*first.Arg)
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: low + 4, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(first.Value >> 32), SkipFalse: uint8(len(w) + 1)},
		bpf.LoadAbsolute{Off: low, Size: 4},
	}
	for i, conditions := range w {
		code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(conditions[0].Value), SkipTrue: uint8(len(w) - i)})
	}
	return append(code, ret(p.Refused), ret(Allow))
}

// alternative allows when all conditions are true, and else goes on behind
// itself. Preconditions: conditions were checked.
func alternative(conditions []Cond) []bpf.Instruction {
	var code []bpf.Instruction
	for _, c := range conditions {
		// The machine has 32 bits: each half of the argument by itself.
		low := uint32(offArgs + 8*c.Arg)
		for _, half := range []struct{ offset, mask, value uint32 }{
			{low + 4, uint32(c.Mask >> 32), uint32(c.Value >> 32)},
			{low, uint32(c.Mask), uint32(c.Value)},
		} {
			if half.mask == 0 {
				continue
			}
			code = append(code, bpf.LoadAbsolute{Off: half.offset, Size: 4})
			if half.mask != 0xffff_ffff {
				code = append(code, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: half.mask})
			}
			code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: half.value})
		}
	}
	code = append(code, ret(Allow))
	for i, in := range code {
		if jump, ok := in.(bpf.JumpIf); ok {
			jump.SkipFalse = uint8(len(code) - i - 1)
			code[i] = jump
		}
	}
	return code
}
