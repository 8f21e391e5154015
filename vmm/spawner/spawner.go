// Package spawner is a small process that starts the daemon's machines.
//
// Until its exec a process in new namespaces has the memory of the one that starts it, or a copy: the daemon's would hold
// what is every tenant's, and a copy of it costs milliseconds. So the daemon has thaw-vmm run a second time, unjailed, with
// nothing in it but this. What it starts are the daemon's own children (CLONE_PARENT), not its: they live on without it, and die
// with the daemon.
//
//	daemon ──Request, stderr, control[, cgroup]──▶ spawner ──clone3, exec──▶ thaw-vmm, child of the daemon
//	       ◀──────────Answer[, pidfd]──────────────
package spawner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/unixfd"
	"thaw/vmm/jail"
)

// Argument is the one that makes thaw-vmm a spawner. Its socket is descriptor [jail.Control].
const Argument = "spawner"

// Request asks for a process.
type Request struct {
	UID, GID uint32 // on the host
	Copied   bool   // it is born in a cgroup whose memory another can fill: [jail.Parent]
}

// requestLength is the length on the wire: the ids, and a byte.
const requestLength = 9

// answer is on the wire: the process's id, or 0 and an error number, and a text.
const answerHeader = 8

// birthPatience is how long a child may take from the answer to its exec, while nothing else can be started.
const birthPatience = 2 * time.Second

// Ask has the spawner at the other end of conn start a process. cgroup may be nil. One request at a time.
// pidfd is the caller's; so is the process, which must be waited for. After the deadline the error wraps
// [os.ErrDeadlineExceeded], and there may be a process all the same.
func Ask(conn *os.File, r Request, deadline time.Time, stderr, control, cgroup *os.File) (pid int, pidfd *os.File, err error) {
	files := []*os.File{stderr, control}
	if cgroup != nil {
		files = append(files, cgroup)
	}
	b := binary.LittleEndian.AppendUint32(nil, r.UID)
	b = binary.LittleEndian.AppendUint32(b, r.GID)
	copied := byte(0)
	if r.Copied {
		copied = 1
	}
	b = append(b, copied)
	if err := unixfd.Send(conn, b, files...); err != nil {
		return 0, nil, fmt.Errorf("spawner: ask: %w", err)
	}
	if err := conn.SetReadDeadline(deadline); err != nil {
		return 0, nil, fmt.Errorf("spawner: ask: %w", err)
	}
	buf := make([]byte, 1024)
	n, got, err := unixfd.Recv(conn, buf, 1)
	if err != nil {
		return 0, nil, fmt.Errorf("spawner: answer: %w", err)
	}
	if n < answerHeader {
		for _, f := range got {
			f.Close()
		}
		return 0, nil, fmt.Errorf("spawner: answer of %d bytes: %w", n, io.ErrUnexpectedEOF)
	}
	pid = int(binary.LittleEndian.Uint32(buf))
	if errno := binary.LittleEndian.Uint32(buf[4:]); errno != 0 {
		err = &Error{Errno: unix.Errno(errno), Text: string(buf[answerHeader:n])}
	}
	if len(got) == 1 {
		pidfd = got[0]
	}
	return pid, pidfd, err
}

// Error is why there is no process.
type Error struct {
	Errno unix.Errno
	Text  string
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.Errno }

// Main is the spawner. It returns the exit code when the daemon closes the socket.
func Main() int {
	if err := serve(os.NewFile(jail.Control, "daemon")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func serve(conn *os.File) error {
	program, err := openHigh("/proc/self/exe", unix.O_PATH)
	if err != nil {
		return fmt.Errorf("spawner: open program: %w", err)
	}
	null, err := openHigh(os.DevNull, unix.O_RDWR)
	if err != nil {
		return fmt.Errorf("spawner: %w", err)
	}
	home, err := jail.OpenHome()
	if err != nil {
		return fmt.Errorf("spawner: %w", err)
	}
	root, err := jail.MakeRoot()
	if err != nil {
		return fmt.Errorf("spawner: %w", err)
	}
	p := jail.Parent{Null: null, Program: program, Environment: Environment(), Home: home, Root: root}
	all := networks{home: home}
	buf := make([]byte, 64)
	for {
		n, files, err := unixfd.Recv(conn, buf, 3)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("spawner: request: %w", err)
		}
		if n != requestLength || len(files) < 2 {
			return fmt.Errorf("spawner: request of %d bytes and %d files: %w", n, len(files), io.ErrUnexpectedEOF)
		}
		p.UID, p.GID = binary.LittleEndian.Uint32(buf), binary.LittleEndian.Uint32(buf[4:])
		p.Copied = buf[8] != 0
		err = bear(conn, p, &all, files)
		for _, f := range files {
			f.Close()
		}
		if err != nil {
			return err
		}
	}
}

// bear starts a process and answers. After an error the spawner must end.
func bear(conn *os.File, p jail.Parent, all *networks, files []*os.File) error {
	numbers := []int{-1, -1, -1}
	for i, f := range files {
		var err error
		if numbers[i], err = unixfd.Number(f); err != nil {
			return err
		}
	}
	p.Stderr, p.Control, p.Cgroup = numbers[0], numbers[1], numbers[2]
	child := &jail.Child{Pidfd: -1}
	var err error
	if p.Network, err = all.take(); err == nil {
		child, err = jail.Bear(p)
		all.lend(p.Network, child.Pidfd)
	}
	var born []*os.File
	if child.Pidfd >= 0 {
		f := os.NewFile(uintptr(child.Pidfd), "pidfd")
		defer f.Close()
		unix.SetNonblock(child.Pidfd, true) // which the daemon's copy shares: its poller takes it then
		born = append(born, f)
	}
	// First the daemon knows of it, and reaps it whatever happens to us. Without an answer none goes on.
	if failed := answer(conn, child.PID, err, born); failed != nil {
		return errors.Join(failed, err)
	}
	if child.Pidfd >= 0 {
		child.Release(birthPatience)
	}
	if errors.Is(err, jail.ErrAway) {
		return err
	}
	return nil
}

// answer says what has come of a request; err may be nil.
func answer(conn *os.File, pid int, err error, born []*os.File) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(pid))
	var errno unix.Errno
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(errno))
	if err != nil {
		text := err.Error()
		b = append(b, text[:min(len(text), 512)]...)
	}
	return unixfd.Send(conn, b, born...)
}

// Environment is all that thaw-vmm gets, as a spawner and as a machine: settings of the Go runtime.
func Environment() []string {
	return []string{
		// Set, so that the runtime does not follow the cgroup's CPU limit through a descriptor of its own. One,
		// because the calls in all threads that the jail needs cost more with each thread; the child raises it.
		"GOMAXPROCS=1",
		// The heap is small and guest memory is not in it. A collection in the middle of a restore would cost
		// more than what it frees: the limit alone decides.
		"GOGC=off",
		"GOMEMLIMIT=16MiB",
	}
}

// openHigh opens a file at a number that no child uses for another.
func openHigh(path string, flags int) (int, error) {
	low, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(low)
	return unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, jail.FirstFile)
}
