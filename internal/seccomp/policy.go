package seccomp

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Action is the kernel's answer to a call (SECCOMP_RET_…).
type Action uint32

// Actions; [Errno] makes others. Kill ends the whole process by SIGSYS: its
// parent sees it, and code under an attacker's control cannot go on trying.
const (
	Allow Action = unix.SECCOMP_RET_ALLOW
	Kill  Action = unix.SECCOMP_RET_KILL_PROCESS
)

// Errno makes the call fail with an error number.
func Errno(e unix.Errno) Action {
	return Action(unix.SECCOMP_RET_ERRNO | uint32(e)&unix.SECCOMP_RET_DATA)
}

// valid tells actions of this package from others, such as the zero value,
// which to the kernel means the end of one thread.
func (a Action) valid() bool {
	return a == Allow || a == Kill || a&^unix.SECCOMP_RET_DATA == unix.SECCOMP_RET_ERRNO && a != unix.SECCOMP_RET_ERRNO
}

// Policy is what a filter is made from.
type Policy struct {
	Unlisted Action // for calls without a rule
	Refused  Action // for calls whose rule does not allow them
	// Rules in the order in which the filter tries them. For calls that are
	// allowed whatever their arguments, the kernel keeps a bitmap and does
	// not run the filter; so the hot ones with conditions come first.
	Rules []Rule
}

// Rule says when one call is allowed.
type Rule struct {
	Number uintptr // unix.SYS_…
	Allow  When
	Why    string // who needs the call, or why nobody does
}

// When holds alternatives, each a list of conditions. It is true if all
// conditions of one alternative are; so the zero value is never true.
type When [][]Cond

// The two ends of [When].
var (
	Always = When{nil}
	Never  = When(nil)
)

// maxConds is how many conditions an alternative may have: enough, and few
// enough for a conditional jump over them (6 instructions each).
const maxConds = 12

// Cond is true if argument & Mask == Value. All 64 bits are compared, also of
// arguments of which the kernel reads 32: to allow by value is safe, to deny by
// value is not.
type Cond struct {
	Arg         int // 0 to 5
	Mask, Value uint64
}

// Is is true if the argument is value.
func Is(arg int, value uint64) Cond { return Cond{arg, math.MaxUint64, value} }

// OneOf is true if the argument is one of values.
func OneOf(arg int, values ...uint64) When {
	var w When
	for _, v := range values {
		w = append(w, []Cond{Is(arg, v)})
	}
	return w
}

// NoBits is true if the argument has none of mask's bits.
func NoBits(arg int, mask uint64) When { return When{{{arg, mask, 0}}} }

// check reports what the compiler cannot translate or nobody can mean.
func (p *Policy) check() error {
	if !p.Unlisted.valid() || !p.Refused.valid() {
		return fmt.Errorf("seccomp: actions %#x and %#x: one is unknown", uint32(p.Unlisted), uint32(p.Refused))
	}
	seen := make(map[uintptr]bool)
	for _, r := range p.Rules {
		if r.Number >= x32 || seen[r.Number] {
			return fmt.Errorf("seccomp: call %d: no such number, or a second rule", r.Number)
		}
		seen[r.Number] = true
		for _, alternative := range r.Allow {
			if len(alternative) > maxConds {
				return fmt.Errorf("seccomp: call %d: more than %d conditions", r.Number, maxConds)
			}
			for _, c := range alternative {
				if c.Arg < 0 || c.Arg > 5 {
					return fmt.Errorf("seccomp: call %d: no argument %d", r.Number, c.Arg)
				}
				if c.Value&^c.Mask != 0 {
					return fmt.Errorf("seccomp: call %d: value %#x is outside of mask %#x", r.Number, c.Value, c.Mask)
				}
			}
		}
	}
	return nil
}
