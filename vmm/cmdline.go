package vmm

import "strings"

// Cmdline is the command line that a guest kernel is booted with, whatever
// runs in the guest. The figures behind it are in kernel/README.md.
func Cmdline(pvm bool, extra ...string) string {
	args := []string{
		"console=ttyS0",
		"loglevel=2", // panics; a character costs an exit, and errors are not for the host
		"panic=-1",   // ends the machine at once
		"reboot=t",   // by a triple fault, the shortest way
		"pci=off",    // there is no such bus to look for
	}
	if pvm {
		args = append(args,
			"nofsgsbase",      // two exits less at each context switch
			"mitigations=off", // their registers are the host's; page table isolation stays
		)
	}
	return strings.Join(append(args, extra...), " ")
}
