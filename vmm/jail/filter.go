package jail

import (
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data (linux/seccomp.h) on a little-endian machine.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

// Verdicts. A violation kills the whole process, so that the parent sees SIGSYS: an error number would let code under
// an attacker's control go on trying. The kernel logs it as seccomp's actions_logged says (by default it does).
var (
	allow = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	kill  = bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
)

// Compile translates a list of rules into the kernel's filter language. What no rule allows is killed, and with it
// every call by another instruction set and, since their numbers are in no rule, by x32.
//
//	        arch is ours? ──no──▶ kill
//	        │ A := number
//	rule 1: A = number? ──no──▶ rule 2
//	        │ alternative 1: A := argument; wrong? ──▶ alternative 2
//	        │                allow
//	        │ …
//	        │ kill
//	rule 2: …
//	        kill
//
// Each rule ends inside its own block, so that A is the call's number at the start of every rule, and no
// conditional jump is longer than one alternative. (go-seccomp-bpf v1.6.0 has neither: after a condition that fails it
// goes on to compare the argument with the next call's number, so clone with flags 17 passes as pread64; and past
// 255 instructions its jumps move.)
func Compile(rules []Rule) ([]bpf.RawInstruction, error) {
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AUDIT_ARCH_X86_64, SkipTrue: 1},
		kill,
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}
	for _, r := range rules {
		block := []bpf.Instruction{allow}
		if r.Any != nil {
			block = nil
			for _, conditions := range r.Any {
				alternative, err := compileAlternative(conditions)
				if err != nil {
					return nil, fmt.Errorf("rule %s: %w", r.Name, err)
				}
				block = append(block, alternative...)
			}
			block = append(block, kill)
		}
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(r.Number), SkipTrue: 1},
			bpf.Jump{Skip: uint32(len(block))},
		)
		program = append(program, block...)
	}
	program = append(program, kill)
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("assemble: %w", err)
	}
	return raw, nil
}

// compileAlternative allows when all conditions are true, and else goes on behind itself.
func compileAlternative(conditions []Cond) ([]bpf.Instruction, error) {
	var code []bpf.Instruction
	for _, c := range conditions {
		if c.Arg < 0 || c.Arg > 5 {
			return nil, fmt.Errorf("argument %d", c.Arg)
		}
		// Jumps test one half of the argument at a time.
		lo := uint32(offArgs + 8*c.Arg)
		for _, half := range []struct{ offset, value uint32 }{{lo + 4, uint32(c.Val >> 32)}, {lo, uint32(c.Val)}} {
			code = append(code, bpf.LoadAbsolute{Off: half.offset, Size: 4})
			switch c.Op {
			case Equal:
				code = append(code, bpf.JumpIf{Cond: bpf.JumpEqual, Val: half.value})
			case NoBits:
				code = append(code, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: half.value})
			default:
				return nil, fmt.Errorf("comparison %d", c.Op)
			}
		}
	}
	code = append(code, allow)
	for i, in := range code {
		jump, ok := in.(bpf.JumpIf)
		if !ok {
			continue
		}
		// Past the end, at most 6 arguments × 4 instructions away.
		if out := uint8(len(code) - i - 1); jump.Cond == bpf.JumpEqual {
			jump.SkipFalse = out
		} else {
			jump.SkipTrue = out
		}
		code[i] = jump
	}
	return code, nil
}

func loadFilter(Options) error {
	raw, err := Compile(Policy)
	if err != nil {
		return err
	}
	return installFilter(raw)
}
