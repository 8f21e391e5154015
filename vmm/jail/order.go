// Package jail is what makes a thaw-vmm unable to do anything but run its guest. When [Enter] has returned, no thread of
// the process can open a file, make a socket, run a program, reach another process or get a capability, whatever code
// runs in it.
//
// It has two halves. [Bear] does what can be done before any code of the program runs, and before it has more than one
// thread: the process is born in new user, mount, pid, net, ipc and uts namespaces, as the only user id of its user
// namespace, in its cgroup, in an empty root, without capabilities, with an environment of the Go runtime's settings
// only and three descriptors: /dev/null, a pipe for crash texts, and one socket. [Enter] is the process's own half: it
// checks the first, and adds what must wait for the descriptors that come by the socket.
//
// No part is optional: a step that fails ends the process before it has touched the machine.
package jail

import (
	"fmt"
	"time"
)

// Options are the numbers of one jail.
type Options struct {
	Name      string // of the process's threads
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

// order is the second half. What has been done by then: [Bear]'s; [CloseInherited]; the start message with every
// descriptor has been received, so that nothing needs to be opened, and the Go runtime's own reads (huge page size,
// cgroup limits: it finds no files) and its poller's descriptors are behind us.
//
// The order matters:
var order = []step{
	// Before anything else only because it is for people: `ps` and crash texts name the process.
	{"name threads", nameThreads},

	// For speed alone, and while there are few threads.
	{"timer slack", setSlack},

	// Whoever started us, there is no jail without its first half.
	{"check birth", checkBirth},

	// Limits may be lowered by anyone, but prlimit64 is not on the seccomp list.
	{"limits", setLimits},

	// The exec has set it anew. From here on nothing of the same user id can ptrace us, and /proc/PID belongs to root.
	{"not dumpable", clearDumpable},

	// Last: the filter allows none of the calls above. Without capabilities the kernel takes it only from a thread with
	// no_new_privs, which all have from birth.
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
// Preconditions: started by [Bear]; [CloseInherited] called; every descriptor received.
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
