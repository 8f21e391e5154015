package vmmproc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/internal/uffd"
	"thaw/internal/unixfd"
	"thaw/vmm/dirty"
	"thaw/vmm/vmmproto"
)

// handler is the process that answers the write faults of a shell's machine, which is started when the tracker
// uffd-wp is asked for first. It is the same program as the machine's, in a jail of the same kind, with the same user
// and cgroup; there it can read the machine's process and write to what that one passes to it.
//
//	waiting ──tracker uffd-wp──▶ running ──machine's end, kill──▶ reaped
type handler struct {
	conn  *os.File // its end of the socket to the machine, until it runs
	child *child   // nil: it does not run
	over  chan struct{}
}

// close closes the socket of one that was never started.
func (h *handler) close() {
	if h.conn != nil {
		h.conn.Close()
		h.conn = nil
	}
}

// openUserfault opens the device that a tracker which is to be started needs; nil for the others, and starts the
// handler that it may need. No process is passed the device without need: with userfaultfds a kernel's bugs are
// easier to use.
func (p *Process) openUserfault(tracker string) (*os.File, error) {
	t := dirty.Tracker(tracker)
	if !t.NeedsUserfault() {
		return nil, nil
	}
	if t == dirty.UffdSync {
		if err := p.startHandler(); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(uffd.Device, os.O_RDWR, 0)
}

// startHandler starts the handler, once in a process's life: one that has died takes the tracker with it.
func (p *Process) startHandler() error {
	p.handlerMu.Lock()
	defer p.handlerMu.Unlock()
	h := &p.handler
	if h.child != nil || h.conn == nil {
		return nil // the machine will say that it has none
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.child.pid))
	if err != nil {
		return fmt.Errorf("vmmproc: start handler: %w", err)
	}
	defer memory.Close()
	packet, err := vmmproto.Encode(&vmmproto.Handle{MemoryBytes: p.spec.MemoryBytes})
	if err != nil {
		return fmt.Errorf("vmmproc: start handler: %w", err)
	}
	ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
	if err != nil {
		return err
	}
	// It has nothing more to say or to hear.
	defer ours.Close()
	defer theirs.Close()
	if err := unixfd.Send(ours, packet, h.conn, memory); err != nil {
		return fmt.Errorf("vmmproc: start handler: %w", err)
	}
	if h.child, err = spawn(&p.spec, true, theirs); err != nil {
		return err
	}
	// So that the machine sees its end.
	h.close()
	h.over = make(chan struct{})
	go func() {
		var stderr stderrTail
		stderr.drain(h.child.stderr)
		h.child.stderr.Close()
		<-h.child.done
		close(h.over)
	}()
	return nil
}

// stopHandler ends the handler. The machine runs no more, or is ended by it.
func (p *Process) stopHandler() {
	p.handlerMu.Lock()
	defer p.handlerMu.Unlock()
	h := &p.handler
	h.close()
	if h.child == nil {
		return
	}
	if fd, err := unixfd.Number(h.child.pidfd); err == nil {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // ESRCH: it has gone already
	}
	<-h.over
	h.child.pidfd.Close()
	h.child = nil
}
