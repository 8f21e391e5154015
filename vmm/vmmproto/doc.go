// Package vmmproto is the language between the daemon and one thaw-vmm process.
//
// It is spoken on a SOCK_SEQPACKET socket pair: one packet is one message of at most [MaxMessage] bytes, with the descriptors
// that its kind carries. A message is its kind and its fields, one after the other (coder.go): a machine's first and last
// milliseconds count, and of JSON the first use of each type took longer than its message. So a field has no name, and both ends
// must be of the same [Protocol], which the first message begins with. They are of one build, unless thaw-vmm is replaced under
// a daemon that runs.
//
//	daemon                                thaw-vmm
//	   │ start + every descriptor            │
//	   │────────────────────────────────────▶│ jails itself, makes the machine
//	   │                started │ failed     │
//	   │◀────────────────────────────────────│
//	   │ ping, pause, resume, stop,          │ pong, done,
//	   │ stats_request, console_request,     │ stats, console,
//	   │ restore, save + descriptors,        │ restored, saved,
//	   │ changes                             │ changed
//	   │────────────────────────────────────▶│ (each answered once, with the request's id)
//	   │                          connect    │ the guest dials a vsock port of the host
//	   │◀────────────────────────────────────│
//	   │ connected + descriptor │ refused    │
//	   │────────────────────────────────────▶│
//	   │                           exited    │ last message
//	   │◀────────────────────────────────────│
//
// The same program, started with handle in place of start, answers the write faults of another thaw-vmm
// (package protect) and says nothing more here.
//
// thaw-vmm runs hostile guests, so its bytes are hostile to the daemon: [DecodeFromVMM] takes only the kinds
// that go that way, refuses what is missing and anything after the last field, and validates every field.
// No message from thaw-vmm carries descriptors. The daemon's own messages pass the same checks on the other side
// ([DecodeFromDaemon]), which turns a mistake of the daemon into an error instead of a strange machine.
package vmmproto

import "thaw/internal/kvm"

// Bounds that both sides enforce.
const (
	MaxMessage     = 64 << 10                      // bytes of one packet
	MaxFiles       = 253                           // descriptors of one message: SCM_MAX_FD of the kernel
	MaxConsole     = 32 << 10                      // bytes of console tail in one message
	MaxDetail      = 8 << 10                       // bytes of a text that explains something
	MaxCPUID       = kvm.MaxCPUID * kvm.CPUIDBytes // bytes
	MaxCmdline     = 2047                          // bytes: COMMAND_LINE_SIZE of x86 Linux less the final NUL
	MaxDisks       = 16
	MaxLayers      = 128 // of one disk
	MaxVCPUs       = 64
	MaxMemory      = 1 << 40 // bytes
	MaxStats       = 512     // values in one report
	MaxPhases      = 64
	MaxOutstanding = 32 // connect requests that wait for an answer
)
