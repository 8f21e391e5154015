// Package vmmchild is the half of thaw-vmm that speaks with the daemon: it takes the start message, enters the
// jail, has the machine made, answers the daemon's requests while the machine runs, and reports its end.
//
// What a machine is, it leaves to a [Maker], so that tests can put anything into the real jail.
package vmmchild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/uffd"
	"thaw/internal/unixfd"
	"thaw/vmm/jail"
	"thaw/vmm/spawner"
	"thaw/vmm/vmmproto"
)

// Request is everything that a machine is made from. The files are owned by the maker.
type Request struct {
	Start *vmmproto.Start
	Files map[string]*os.File // by the names of Start.Files
	Fill  *uffd.FD            // of a shell, by uffd.UserModeOnly; nil if the host has none
	// Connect asks the daemon for a stream to a vsock port that the guest dials. It blocks until the answer, and
	// fails at once when too many requests are waiting already.
	Connect func(port uint32) (*os.File, error)
}

// Maker makes the machine. It runs inside the jail.
type Maker func(Request) (Machine, error)

// Machine is a machine that has been made and not yet run. Methods other than Run are called from other goroutines
// than Run, one at a time.
type Machine interface {
	// Run runs the guest until it ends or ctx does.
	Run(ctx context.Context) (vmmproto.Exited, error)
	Pause() error
	Resume() error
	// Stop makes Run return soon, with reason stopped.
	Stop()
	// Console returns the last bytes that the guest wrote to its console.
	Console() []byte
	Stats() map[string]uint64
	// SetBalloon asks the guest to give back that many MiB; it does not wait for it.
	SetBalloon(mib uint64) error
	// MemoryStats asks the guest how it uses its memory, and waits for the answer until ctx is done.
	MemoryStats(ctx context.Context) (map[string]uint64, error)
	// Restore gives a shell its machine, or puts a machine back in place; the files are its own from then on.
	Restore(m *vmmproto.Restore, files RestoreFiles) (vmmproto.Restored, error)
	// Save writes a paused instant of the machine; the files are its own from then on.
	Save(m *vmmproto.Save, files SaveFiles) (vmmproto.Saved, error)
	// Changes counts the pages that differ from what the machine was restored from or saved as last.
	Changes() (vmmproto.Changed, error)
	// Phases says what the time until now was spent on. Names begin with "machine.", see [Within].
	Phases() []vmmproto.Phase
}

// Exit codes of thaw-vmm. Go's runtime uses 2 for a panic, and [Main] for a start by hand.
const (
	exitEnded   = 0 // the machine ended; the daemon knows how
	exitFailed  = 1 // no machine; the daemon has been told why
	exitByHand  = 2
	exitOrphan  = 3 // the daemon is gone
	exitRefused = 4 // the daemon's message was not understood
)

const startDeadline = 10 * time.Second

// spareProcessors are Go's for devices. On a pvm host with two CPUs every third rollback took 10 to 20 ms longer with
// one. With four, and the watchman of the runtime as slow as package jail makes it, a rollback took two milliseconds longer
// until it was acknowledged; not with ten.
const spareProcessors = 10

// shellFileBytes is how large a disk of a shell's can be at most.
const shellFileBytes = 64 << 30

// Main is thaw-vmm. It returns the exit code.
func Main(newMachine Maker) int {
	began := time.Now()
	if !startedByDaemon() {
		fmt.Fprintln(os.Stderr, "thaw-vmm runs one virtual machine inside a jail that thawd makes for it; it is not started by hand.")
		return exitByHand
	}
	if err := jail.CloseInherited(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	if len(os.Args) > 1 {
		return spawner.Main()
	}
	growStack()
	// The first pollable file: from here on the runtime has its poller, which the filter would not let it make.
	c := newControl(os.NewFile(jail.Control, "control"))
	phases := []vmmproto.Phase{}
	phase := func(name string) {
		now := time.Now()
		phases = append(phases, vmmproto.Phase{Name: name, Micros: now.Sub(began).Microseconds()})
		began = now
	}

	message, received, err := c.receiveFirst(time.Now().Add(startDeadline))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitRefused
	}
	if h, ok := message.(*vmmproto.Handle); ok {
		return handle(h, received[0], received[1])
	}
	start, files, err := started(message, received)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitRefused
	}
	phase("receive")

	limits, err := jailOptions(start, files)
	var steps []jail.Step
	if err == nil {
		err = numberHandler(files)
	}
	var fill *uffd.FD
	if start.Shell {
		// The filter would not let it be made. It is gone before a guest runs; a host without it is slower, no more.
		fill, _ = uffd.UserModeOnly()
	}
	if err == nil {
		steps, err = jail.Enter(limits)
	}
	if err != nil {
		return c.fail("jail", err)
	}
	// Threads of vCPUs and of queues sit in system calls, and each keeps its processor until the runtime's watchman
	// comes by, which may be 20 ms later: what such a thread has made ready before waits with it, unless there are more
	// processors than are kept at a time.
	runtime.GOMAXPROCS(start.VCPUs + spareProcessors)
	phase("jail")
	for _, s := range steps {
		phases = append(phases, Within("jail", s.Name, s.Took))
	}

	m, err := newMachine(Request{Start: start, Files: files, Fill: fill, Connect: c.connect})
	if err != nil {
		return c.fail("machine", err)
	}
	phase("machine")

	c.machine = m
	if err := c.send(&vmmproto.Started{Phases: append(phases, m.Phases()...)}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitOrphan
	}
	go func() { os.Exit(c.run(m)) }()
	// Here, since this goroutine's stack is large.
	return c.serve()
}

// run runs the machine and says how it ended. It returns the exit code.
func (c *control) run(m Machine) int {
	exited, err := m.Run(context.Background())
	if err != nil {
		exited.Reason, exited.Detail = vmmproto.Internal, err.Error()
	}
	exited.Detail = vmmproto.CleanText(exited.Detail)
	exited.Console = tail(m.Console())
	if err := c.send(&exited); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitOrphan
	}
	return exitEnded
}

// Within names a part of a phase: "jail.check_birth" is within "jail".
func Within(phase, part string, took time.Duration) vmmproto.Phase {
	return vmmproto.Phase{Name: phase + "." + strings.ReplaceAll(part, " ", "_"), Micros: took.Microseconds()}
}

// startedByDaemon tells whether descriptor 3 is a socket as vmmproc makes it.
func startedByDaemon() bool {
	kind, err := unix.GetsockoptInt(jail.Control, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && kind == unix.SOCK_SEQPACKET &&
		(len(os.Args) == 1 || len(os.Args) == 2 && os.Args[1] == spawner.Argument)
}

// receiveFirst takes the first message, which waits in the socket since before we were born.
func (c *control) receiveFirst(deadline time.Time) (vmmproto.Message, []*os.File, error) {
	c.conn.SetReadDeadline(deadline)
	defer c.conn.SetReadDeadline(time.Time{})
	message, files, err := c.receive(vmmproto.MaxFiles)
	if err != nil {
		return nil, nil, fmt.Errorf("vmmchild: receive start: %w", err)
	}
	return message, files, nil
}

// started names the files of a start message.
func started(message vmmproto.Message, files []*os.File) (*vmmproto.Start, map[string]*os.File, error) {
	start, ok := message.(*vmmproto.Start)
	if !ok {
		closeAll(files)
		return nil, nil, fmt.Errorf("vmmchild: first message is %s, want start", message.Kind())
	}
	named := make(map[string]*os.File, len(files))
	for i, name := range start.Files {
		named[name] = files[i]
	}
	return start, named, nil
}

// jailOptions derives the jail's numbers from what was passed.
func jailOptions(start *vmmproto.Start, files map[string]*os.File) (jail.Options, error) {
	var largest uint64
	if start.Shell {
		// The files that it will write are not known yet. The pages of a snapshot come to the memory's size at most.
		largest = max(start.MemoryBytes, shellFileBytes)
	}
	for name, f := range files {
		fd, err := unixfd.Number(f)
		if err != nil {
			return jail.Options{}, fmt.Errorf("vmmchild: %s: %w", name, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return jail.Options{}, fmt.Errorf("vmmchild: stat %s: %w", name, err)
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return jail.Options{}, fmt.Errorf("vmmchild: flags of %s: %w", name, err)
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG && flags&unix.O_ACCMODE != unix.O_RDONLY {
			largest = max(largest, uint64(st.Size))
		}
	}
	return jail.Options{
		Name: jail.ProgramName,
		// Each vsock stream is one descriptor.
		OpenFiles: 4096,
		// No file may grow beyond the largest size that a writable one has now. Guest memory counts, since kernel and
		// initramfs are written to its file; it is sealed, so what could become as large as that is a disk.
		FileBytes: largest,
		// vCPUs, plus one for each block request that sleeps in the kernel; Go keeps what it once had.
		Threads: 1024,
	}, nil
}

// fail tells the daemon why there is no machine.
func (c *control) fail(stage string, err error) int {
	if sendErr := c.send(&vmmproto.Failed{Stage: stage, Detail: vmmproto.CleanText(err.Error())}); sendErr != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, sendErr))
	}
	return exitFailed
}

// tail keeps the last bytes, as many as a message takes.
func tail(b []byte) []byte {
	return b[max(0, len(b)-vmmproto.MaxConsole):]
}
