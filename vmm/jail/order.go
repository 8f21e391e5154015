// Package jail is what thaw-vmm does to itself between its start and its first guest instruction. When
// [Enter] has returned, no thread of the process can open a file, make a socket, run a program, reach another
// process or get a capability, whatever code runs in it.
//
// The parent (package vmmproc) does the part that only a parent can: it starts the process in new user, mount, pid,
// net, ipc and uts namespaces, as the only user id of its user namespace, in its cgroup, with an empty environment and
// three descriptors: /dev/null, a pipe for crash texts, and one socket.
//
// No part is optional: a step that fails ends the process before it has touched the machine.
package jail

import (
	"fmt"
	"time"
)

// Options are the numbers of one jail.
type Options struct {
	Hostname  string // of the uts namespace; also the name of the process's threads
	OpenFiles uint64 // most descriptors
	FileBytes uint64 // largest size to which a passed file may grow
	Threads   uint64 // most threads of this user id
	Handler   bool   // of write faults, rather than a machine: HandlerPolicy
}

// step is one stage of [Enter].
type step struct {
	name string
	run  func(Options) error
}

// order is the whole sequence. What has been done by then: the parent's part; [CloseInherited]; the start message
// with every descriptor has been received, so that nothing needs to be opened, and the Go runtime's own reads
// (huge page size, cgroup limits) and its poller's descriptors are behind us.
//
// The order matters:
var order = []step{
	// Before anything else only because it is for people: `ps` and crash texts name the process.
	{"name threads", nameThreads},

	// Needs CAP_SYS_ADMIN of our user namespace, and /proc as a mount point: before capabilities go.
	// Unmounting the old root is what makes "opens nothing" true even without seccomp.
	{"empty root", emptyRoot},

	// Needs CAP_SYS_ADMIN as well.
	{"host name", setHostname},

	// Limits may be lowered by anyone, but prlimit64 is not on the seccomp list. After the root, because the mount
	// calls hold descriptors for a moment.
	{"limits", setLimits},

	// PR_CAPBSET_DROP and PR_SET_SECUREBITS need CAP_SETPCAP: before the capabilities themselves are dropped.
	// The bounding set and the secure bits keep an exec from ever giving them back, seccomp or not.
	{"bounding set", dropBounding},
	{"secure bits", lockSecureBits},

	// The last use of a capability is over. Capabilities are per thread on Linux: every thread drops its own.
	{"capabilities", dropCapabilities},

	// After the last change of credentials, because the kernel sets "dumpable" anew at each. From here on nothing of
	// the same user id can ptrace us, and /proc/PID belongs to root.
	{"not dumpable", clearDumpable},

	// Without capabilities the kernel takes a seccomp filter only from a thread with no_new_privs.
	{"no new privileges", noNewPrivs},

	// Last: the filter allows none of the calls above.
	{"seccomp", loadFilter},
}

// Step is how long one stage of [Enter] took.
type Step struct {
	Name string
	Took time.Duration
}

// Enter jails the whole process, all of its threads, for good. After an error the process is half jailed and
// must exit.
//
// Preconditions: started by package vmmproc; [CloseInherited] called; every descriptor received; the binary is
// static (CGO_ENABLED=0), since threads of C code would escape syscall.AllThreadsSyscall.
func Enter(o Options) ([]Step, error) {
	var steps []Step
	for _, s := range order {
		began := time.Now()
		if err := s.run(o); err != nil {
			return steps, fmt.Errorf("jail: %s: %w", s.name, err)
		}
		steps = append(steps, Step{s.name, time.Since(began)})
	}
	return steps, nil
}
