package agent

import (
	"fmt"
	"os"
	"sync"

	"thaw/guestinit/agentproto"
)

// stdin carries the host's bytes to a job. The connection's reader adds to
// it and never blocks, since the host sends no more than it has credit for;
// run writes them to the pipe as the job reads, and grants new credit.
type stdin struct {
	e *execution
	w *os.File

	mu     sync.Mutex
	more   sync.Cond
	queue  []byte // protected by mu
	taken  int64  // bytes since the exec's start; protected by mu
	unpaid int    // bytes taken without credit given back; protected by mu
	end    bool   // no more will be added; protected by mu
	closed bool   // the exec is over; protected by mu
}

func newStdin(e *execution, w *os.File) *stdin {
	s := &stdin{e: e, w: w}
	s.more.L = &s.mu
	return s
}

// add queues bytes, the last ones if end.
func (s *stdin) add(b []byte, end bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end {
		return fmt.Errorf("agent: stdin after its end: %w", agentproto.ErrProtocol)
	}
	if s.unpaid += len(b); s.unpaid > agentproto.StdinWindow {
		return fmt.Errorf("agent: stdin beyond its credit: %w", agentproto.ErrProtocol)
	}
	s.queue = append(s.queue, b...)
	s.taken += int64(len(b))
	s.end = end
	s.more.Signal()
	return nil
}

// take waits for bytes and returns all that there are; ok is false at the
// end.
func (s *stdin) take(reuse []byte) (b []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.end && !s.closed {
		s.more.Wait()
	}
	if s.closed || len(s.queue) == 0 {
		return nil, false
	}
	b, s.queue = s.queue, reuse[:0]
	return b, true
}

// run writes to the job until the end of its input or its own.
func (s *stdin) run() {
	defer s.e.s.guardExec(s.e)
	defer s.w.Close()
	var reuse []byte
	owed, broken := 0, false
	for {
		b, ok := s.take(reuse)
		if !ok {
			return
		}
		if !broken {
			// A job that closed its input gets no more of it, but the host
			// goes on: it need not know.
			_, err := s.w.Write(b)
			broken = err != nil
		}
		owed += len(b)
		// A quarter at a time: the host stalls only with all of it used.
		if owed >= agentproto.StdinWindow/4 {
			s.pay(owed)
			owed = 0
		}
		reuse = b
	}
}

// pay gives credit back. With no connection attached the next one starts with
// it.
func (s *stdin) pay(n int) {
	closed := false
	c := s.e.link.acquireNow(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unpaid -= n
		closed = s.closed
	})
	if c == nil {
		return
	}
	if !closed {
		_ = c.sendCredit(n) // a lost connection is seen by its reader
	}
	s.e.link.release(c, false, func() {})
}

// state is what a connection that attaches is told. Preconditions: the link is
// locked, so that no credit is on its way.
func (s *stdin) state() (at int64, open bool, credit uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken, !s.end && !s.closed, uint32(agentproto.StdinWindow - s.unpaid)
}

// close ends the stream from the agent's side, also in the middle of a write.
func (s *stdin) close() {
	s.mu.Lock()
	s.closed = true
	s.more.Signal()
	s.mu.Unlock()
	s.w.Close()
}
