package jail

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Parent is what a process is born with.
type Parent struct {
	UID, GID uint32 // host ids, the only ones in its user namespace
	// Descriptors of the caller: of /dev/null, of a pipe for crash texts, of the control socket, and of the program.
	Null, Stderr, Control, Program int
	Cgroup                         int // v2 folder that it is born in; -1: the caller's
	// Network is the network namespace that it is born in, in which nobody else is; Home is the caller's own.
	Network, Home Network
	Root          Root // that it is born with
	// Copied: it is born with a copy of the caller's memory, which costs time, and not with the memory itself. Needed in a
	// cgroup whose memory another can fill: what shares the memory of a process that must die for that dies with it.
	Copied      bool
	Environment []string
}

// namespaces that are made for each machine, besides its [Network]. No cgroup namespace: without a mounted file system
// there is nothing in which the process could see its cgroup's name.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// ProgramName is argument 0 of the program, and its only one.
const ProgramName = "thaw-vmm"

// Child is a process that has been born and waits at a gate. It ends when the gate is closed before it is let go on, as it is
// when the caller dies.
type Child struct {
	PID, Pidfd int // the pidfd is the caller's
	gate       int
	copied     bool
	calls      *callList
}

// Bear makes a process in namespaces of its own, without capabilities and in an empty root: all of the jail that can be
// there before any code of the program runs, which [Child.Release] lets it get to. The new process is a child of the
// caller's *parent*, and dies with the thread of that which started the caller.
//
// The error is of the start itself; after one that wraps [ErrAway] nothing more can be started. Without a child Pidfd is -1;
// if there is one after an error it has been killed, and is to be released like another. A step that fails later ends the
// process, and its text is on Stderr.
func Bear(p Parent) (*Child, error) {
	// Our end of the gate is closed without a byte when we die: then the child ends. Its own end is closed by the exec.
	gate, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return &Child{Pidfd: -1}, fmt.Errorf("jail: make gate: %w", err)
	}
	c := &Child{Pidfd: -1, gate: gate[0], copied: p.Copied}
	if c.calls, err = p.calls(gate[0], gate[1]); err == nil {
		err = p.Root.visit(func() error {
			return p.Network.visit(p.Home, func() error {
				var errno unix.Errno
				if c.PID, c.Pidfd, errno = clone(p.Cgroup, p.Copied, c.calls); errno != 0 {
					return fmt.Errorf("jail: start in namespaces: %w", errno)
				}
				return nil
			})
		})
	}
	unix.Close(gate[1])
	if c.Pidfd < 0 {
		unix.Close(gate[0])
		return c, err
	}
	if err == nil {
		err = p.mapIDs(c.PID)
	}
	if err != nil {
		c.kill()
	}
	return c, err
}

// mapIDs gives the child its ids.
func (p *Parent) mapIDs(pid int) error {
	for _, m := range []struct {
		file string
		id   uint32
	}{{"uid_map", p.UID}, {"gid_map", p.GID}} {
		path := fmt.Sprintf("/proc/%d/%s", pid, m.file)
		if err := os.WriteFile(path, []byte("0 "+strconv.FormatUint(uint64(m.id), 10)+" 1"), 0); err != nil {
			return fmt.Errorf("jail: %w", err)
		}
	}
	return nil
}

// Release lets the child go on, and returns when its list is not used any more: at once for one with a copy of it, or else
// when it has become the program or has ended. The caller can make no other meanwhile, and who could have the child stand
// still (stopped, or in a cgroup that gets no processor) would stop every birth: after patience it is killed.
func (c *Child) Release(patience time.Duration) {
	defer unix.Close(c.gate)
	if _, err := unix.Write(c.gate, []byte{1}); err != nil { // it has ended, unless something is wrong
		c.kill()
	}
	if !c.copied && !c.gone(patience) {
		c.kill()
		for !c.gone(patience) { // until then it uses the list; a kill makes it certain
		}
	}
	runtime.KeepAlive(c.calls)
}

// gone waits until the child's end of the gate is closed, and tells whether it is.
func (c *Child) gone(patience time.Duration) bool {
	end := time.Now().Add(patience)
	for {
		// Nothing is ever written at the other end.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.gate), Events: unix.POLLIN}}, max(int(time.Until(end).Milliseconds()), 0))
		if err != unix.EINTR {
			return err == nil && n > 0
		}
	}
}

// kill needs no result: whoever holds the pidfd reaps it, and a process that has ended needs no kill.
func (c *Child) kill() { unix.PidfdSendSignal(c.Pidfd, unix.SIGKILL, nil, 0) }

// calls are what the child does, in order: system calls and nothing else, since it has only registers of its own. A call
// whose result is another than it should be ends the child. ours and gate are the ends of the gate.
func (p *Parent) calls(ours, gate int) (*callList, error) {
	last, err := lastCapability()
	if err != nil {
		return nil, err
	}
	l := &callList{}
	// The copy of our end would keep the gate from closing.
	l.add("close gate", 0, unix.SYS_CLOSE, l.number(ours))
	// Ids are there when the gate opens.
	l.add("wait for ids", 1, unix.SYS_READ, l.number(gate), l.buffer(1), 1)
	// A clean table first: later texts of errors go to the pipe. Everything else is closed by the exec.
	for i, fd := range []int{p.Null, p.Null, p.Stderr, p.Control} {
		l.add("descriptors", uintptr(i), unix.SYS_DUP3, l.number(fd), uintptr(i), 0)
	}
	l.add("groups", 0, unix.SYS_SETGROUPS, 0, 0)
	l.add("group id", 0, unix.SYS_SETRESGID, 0, 0, 0)
	l.add("user id", 0, unix.SYS_SETRESUID, 0, 0, 0)
	l.add("session", 1, unix.SYS_SETSID) // no controlling terminal; we are process 1

	// Need CAP_SYS_ADMIN of our user namespace: before capabilities go.
	l.add("host name", 0, unix.SYS_SETHOSTNAME, l.text(ProgramName), uintptr(len(ProgramName)))
	l.add("domain name", 0, unix.SYS_SETDOMAINNAME, 0, 0)

	// Need CAP_SETPCAP: before the capabilities themselves are dropped. The bounding set and the secure bits keep an
	// exec, also that at the end, from ever giving them back.
	for capability := range last + 1 {
		l.add("bounding set", 0, unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
	}
	l.add("secure bits", 0, unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0)
	l.add("ambient set", 0, unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	l.add("capabilities", 0, unix.SYS_CAPSET, l.bytes(emptyCapabilities()), l.buffer(24))
	l.add("no new privileges", 0, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)

	// Signals are blocked since before the clone, and stay so in a program.
	l.add("signal mask", 0, unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, l.buffer(8), 0, 8)
	l.add("timer slack", 0, unix.SYS_PRCTL, unix.PR_SET_TIMERSLACK, watchSlack, 0, 0, 0)
	// Cleared by changes of credentials: after them.
	l.add("die with the daemon", 0, unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
	l.add("run the program", 0, unix.SYS_EXECVEAT, l.number(p.Program), l.text(""), l.texts(ProgramName), l.texts(p.Environment...), unix.AT_EMPTY_PATH)
	return l, l.err
}

// lastCapability is the highest that this kernel knows.
func lastCapability() (uintptr, error) {
	for capability := uintptr(unix.CAP_LAST_CAP / 2); ; capability++ {
		switch _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, capability, 0, 0, 0); err {
		case nil:
		case unix.EINVAL:
			return capability - 1, nil
		default:
			return 0, fmt.Errorf("jail: read bounding set: %w", err)
		}
	}
}
