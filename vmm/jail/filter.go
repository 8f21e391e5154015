package jail

import (
	"fmt"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
)

// Assemble compiles [Policy] to the kernel's filter language. Other instruction sets than the native one end in the
// default action too; calls by x32 numbers give ENOSYS.
//
// The default action kills the whole process, so that a violation is seen as SIGSYS by the parent: an error
// number would let code under an attacker's control go on trying. The kernel logs the kill where seccomp's
// actions_logged says so, with the number of the call.
func Assemble() ([]bpf.RawInstruction, error) {
	// Two groups, because within one the library puts calls without conditions first.
	conditional := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	plain := seccomp.SyscallGroup{Action: seccomp.ActionAllow}
	for _, rule := range Policy {
		if rule.Any == nil {
			plain.Names = append(plain.Names, rule.Name)
		}
		for _, all := range rule.Any {
			var conditions seccomp.ArgumentConditions
			for _, c := range all {
				operation, ok := operations[c.Op]
				if !ok {
					return nil, fmt.Errorf("rule %s: unknown comparison %d", rule.Name, c.Op)
				}
				conditions = append(conditions, seccomp.Condition{Argument: uint32(c.Arg), Operation: operation, Value: c.Val})
			}
			conditional.NamesWithCondtions = append(conditional.NamesWithCondtions,
				seccomp.NameWithConditions{Name: rule.Name, Conditions: conditions})
		}
	}
	policy := seccomp.Policy{
		DefaultAction: seccomp.ActionKillProcess,
		Syscalls:      []seccomp.SyscallGroup{conditional, plain},
	}
	instructions, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("compile policy: %w", err)
	}
	raw, err := bpf.Assemble(instructions)
	if err != nil {
		return nil, fmt.Errorf("assemble filter: %w", err)
	}
	return raw, nil
}

var operations = map[Op]seccomp.Operation{Equal: seccomp.Equal, NoBits: seccomp.BitsNotSet}

func loadFilter(Options) error {
	raw, err := Assemble()
	if err != nil {
		return err
	}
	return installFilter(raw)
}
