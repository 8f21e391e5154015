package seccomp

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Scope says which threads a filter is put on. Threads and processes that they
// make later have it too.
type Scope int

// Scopes.
const (
	// ThisThread is the calling one; the goroutine must be locked to it.
	ThisThread Scope = iota
	// AllThreads is every one of the process, at once or none
	// (SECCOMP_FILTER_FLAG_TSYNC).
	AllThreads
)

// Install compiles the policy and puts it on threads, for good.
//
// Preconditions: no_new_privs is set on them, or they have CAP_SYS_ADMIN.
func Install(p *Policy, scope Scope) error {
	raw, err := p.Compile()
	if err != nil {
		return err
	}
	return InstallProgram(raw, scope)
}

// InstallProgram is [Install] of what [Policy.Compile] returned, maybe in another process. The preconditions are the same, and
// that there is an instruction.
func InstallProgram(raw []bpf.RawInstruction, scope Scope) error {
	var flags uintptr
	switch scope {
	case ThisThread:
	case AllThreads:
		flags = unix.SECCOMP_FILTER_FLAG_TSYNC
	default:
		return errors.New("seccomp: install: unknown scope")
	}
	// An instruction is laid out as in struct sock_filter (linux/filter.h).
	program := unix.SockFprog{Len: uint16(len(raw)), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(raw)
	if errno != 0 {
		return fmt.Errorf("seccomp: install: %w", errno)
	}
	// With TSYNC the kernel tells by this, and no error number, that one
	// thread cannot take the filter; then none has it.
	if thread != 0 {
		return fmt.Errorf("seccomp: install: thread %d cannot take the filter", thread)
	}
	return nil
}
