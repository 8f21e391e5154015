// Package lab starts the lab: an emulated machine with ordinary KVM, on any
// computer.
//
// QEMU's software CPU implements SVM with nested paging, so a Debian kernel that
// runs on it has a real /dev/kvm (kvm-amd), SMP, and cgroup v2 with every
// controller. The lab's root is the host's own tree, seen over virtiofs below an
// overlay in the lab's memory: the same binaries at the same paths, and nothing
// that the lab does reaches the host's files, except in the folders named by
// Options.Writable. It is 10 to 20 times slower than its host: it is for
// behaviour, never for times.
//
//	host                                          lab
//	 Lab (supervisor) ── starts ──▶ QEMU            kernel ─ labinit (PID 1)
//	   │                             │ virtiofs ───▶ /      └ labinit serve
//	   └── socketpair ── chardev ── virtio-serial ── yamux ──┘  ├ commands
//	                                                            └ Unix sockets
//
// A Lab's life; a second death is final:
//
//	starting ──up──▶ up ──kernel died──▶ restarting ──up──▶ up ──died──▶ failed
//	    └─ died or not up in time ──────────▲  └─ died ─────────────────────▲
//
// The lab is not a security boundary: it reads every file that its user can
// read, and emulated CPUs are no defence against hostile guests.
package lab
