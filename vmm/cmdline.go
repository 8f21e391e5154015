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
		// Kernels prefer the TSC where it is stable. KVM can set kvmclock but not
		// every host's TSC, which goes on while a snapshot lies in its file: a
		// restored guest's monotonic clock would jump. A reading stays in the
		// vDSO (23 ns, with the TSC 20 to 22).
		"clocksource=kvm-clock",
		// KVM would tell the guest of a page that it must wait for, and later that the
		// page has come. What it has yet to tell is no part of a saved machine, and a
		// restored processor that misses the last message never sleeps again: KVM
		// takes it for one that has something to do.
		"no-kvmapf",
	}
	if pvm {
		args = append(args,
			"nofsgsbase",      // two exits less at each context switch
			"mitigations=off", // their registers are the host's; page table isolation stays
		)
	}
	return strings.Join(append(args, extra...), " ")
}
