// Package seccomp turns lists of system calls into filters of the kernel
// (seccomp(2), Documentation/userspace-api/seccomp_filter.rst) and installs
// them.
//
// A list is data, so that it reads like the policy that it is and can be
// tested without being installed:
//
//	var jail = seccomp.Policy{
//		Unlisted: seccomp.Kill, Refused: seccomp.Kill,
//		Rules: []seccomp.Rule{
//			{Number: unix.SYS_READ, Allow: seccomp.Always, Why: "devices"},
//			{Number: unix.SYS_MMAP, Allow: seccomp.NoBits(2, unix.PROT_EXEC), Why: "memory, never code"},
//		},
//	}
//
// A rule says when its call is allowed. A list of what is allowed answers
// everything else with Kill; a list of what is denied has rules that are Never
// true, and lets pass what it does not name.
//
// Whatever the list says, calls of another instruction set kill the process,
// and calls of x32, which are ours with a bit in their numbers, are refused:
// a list of numbers says nothing about either.
//
// The decision against a library for this is docs/adr/0008-seccomp.md.
package seccomp
