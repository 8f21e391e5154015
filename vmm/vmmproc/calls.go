package vmmproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"thaw/internal/unixfd"
	"thaw/vmm/vmmproto"
)

// Pause stops the vCPUs and returns when they stand.
func (p *Process) Pause(ctx context.Context) error {
	return p.do(ctx, func(id uint64) vmmproto.Message { return &vmmproto.Pause{ID: id} })
}

// Resume lets the vCPUs run again.
func (p *Process) Resume(ctx context.Context) error {
	return p.do(ctx, func(id uint64) vmmproto.Message { return &vmmproto.Resume{ID: id} })
}

// Stop asks the VMM to end the machine without asking the guest; [Process.Wait] then gives [Stopped]. A machine
// that has ended already is no error.
func (p *Process) Stop(ctx context.Context) error {
	err := p.do(ctx, func(id uint64) vmmproto.Message { return &vmmproto.Stop{ID: id} })
	if errors.Is(err, ErrExited) {
		return nil
	}
	return err
}

// Stats returns the VMM's counters and gauges by name. The values come from the VMM: hostile, and never more than
// vmmproto.MaxStats.
func (p *Process) Stats(ctx context.Context) (map[string]uint64, error) {
	reply, err := p.call(ctx, func(id uint64) vmmproto.Message { return &vmmproto.StatsRequest{ID: id} })
	if err != nil {
		return nil, err
	}
	m, err := as[*vmmproto.Stats](p, reply)
	if err != nil {
		return nil, err
	}
	return m.Values, nil
}

// SetBalloon asks the guest to give back that many MiB of its memory; zero lets it have all. It does not wait until
// the guest has followed, which it may never do.
func (p *Process) SetBalloon(ctx context.Context, mib uint64) error {
	return p.do(ctx, func(id uint64) vmmproto.Message { return &vmmproto.SetBalloon{ID: id, MiB: mib} })
}

// MemoryStats asks the guest how it uses its memory: bytes and counts by the names of balloon.Tag. The values are the
// guest's word; a guest that does not answer within a second is an error.
func (p *Process) MemoryStats(ctx context.Context) (map[string]uint64, error) {
	reply, err := p.call(ctx, func(id uint64) vmmproto.Message { return &vmmproto.MemoryStats{ID: id} })
	if err != nil {
		return nil, err
	}
	m, err := orDone[*vmmproto.Stats](p, reply)
	if err != nil {
		return nil, err
	}
	return m.Values, nil
}

// Console returns the last bytes that the guest wrote to its console, at most vmmproto.MaxConsole: hostile bytes.
func (p *Process) Console(ctx context.Context) ([]byte, error) {
	reply, err := p.call(ctx, func(id uint64) vmmproto.Message { return &vmmproto.ConsoleRequest{ID: id} })
	if err != nil {
		return nil, err
	}
	m, err := as[*vmmproto.Console](p, reply)
	if err != nil {
		return nil, err
	}
	return m.Tail, nil
}

func (p *Process) do(ctx context.Context, request func(id uint64) vmmproto.Message) error {
	reply, err := p.call(ctx, request)
	if err != nil {
		return err
	}
	m, err := as[*vmmproto.Done](p, reply)
	if err != nil {
		return err
	}
	if m.Error != "" {
		return fmt.Errorf("vmmproc: vmm says: %s", m.Error)
	}
	return nil
}

// as takes only the reply that belongs to the request.
func as[T vmmproto.Reply](p *Process, reply vmmproto.Reply) (T, error) {
	m, ok := reply.(T)
	if !ok {
		err := fmt.Errorf("vmmproc: answer is %s, want %s", reply.Kind(), m.Kind())
		p.condemn(verdict{reason: ProtocolError, detail: err.Error()})
		return m, err
	}
	return m, nil
}

// call sends a request with its files and waits for its reply.
func (p *Process) call(ctx context.Context, request func(id uint64) vmmproto.Message, files ...*os.File) (vmmproto.Reply, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("vmmproc: %s: %w", request(0).Kind(), err)
	}
	reply := make(chan vmmproto.Reply, 1)
	p.mu.Lock()
	p.lastCall++
	id := p.lastCall
	p.calls[id] = reply
	p.mu.Unlock()

	m := request(id)
	if err := p.send(m, nil, files...); err != nil {
		select {
		case <-p.reaped:
			err = ErrExited
		default:
		}
		return nil, fmt.Errorf("vmmproc: %s: %w", m.Kind(), err)
	}
	select {
	case r := <-reply:
		return r, nil
	case <-p.over:
		return nil, fmt.Errorf("vmmproc: %s: %w: %s", m.Kind(), ErrExited, p.exit)
	case <-ctx.Done():
		// The id stays in the table, so that the late reply is known and dropped. There are never more of them
		// than requests that the daemon made, and a process that does not answer is found hung.
		return nil, fmt.Errorf("vmmproc: %s: %w", m.Kind(), ctx.Err())
	}
}

// send sends a message and calls sent, if there is one, before the next message goes. A process that does not read
// for PingTimeout is as good as hung: the send fails.
func (p *Process) send(m vmmproto.Message, sent func(), files ...*os.File) error {
	packet, err := vmmproto.Encode(m)
	if err != nil {
		return err
	}
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	if sent != nil {
		defer sent()
	}
	p.control.SetWriteDeadline(time.Now().Add(p.spec.PingTimeout))
	return unixfd.Send(p.control, packet, files...)
}

// ping asks for a sign of life every PingEvery, and kills a process that gives none for PingTimeout.
func (p *Process) ping() {
	defer p.workers.Done()
	ticker := time.NewTicker(p.spec.PingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.over:
			return
		case <-ticker.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), p.spec.PingTimeout)
		reply, err := p.call(ctx, func(id uint64) vmmproto.Message { return &vmmproto.Ping{ID: id} })
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
			p.kill(verdict{reason: Hung, detail: fmt.Sprintf("no answer to a ping for %v (process state %s)",
				p.spec.PingTimeout, processState(p.child.pid))})
			return
		case err != nil:
			// It is ending, or the socket is closed: the reader and the keeper see why.
			return
		}
		if _, err := as[*vmmproto.Pong](p, reply); err != nil {
			return
		}
	}
}

// processState is the state letter and word of /proc/PID/status, such as "T (stopped)".
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if state, ok := strings.CutPrefix(line, "State:"); ok {
			return strings.TrimSpace(state)
		}
	}
	return "unknown"
}
