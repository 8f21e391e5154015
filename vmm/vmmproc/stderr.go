package vmmproc

import (
	"os"
	"sync"

	"thaw/vmm/vmmproto"
)

const (
	stderrKept = 16 << 10 // bytes of the start and of the end that are kept, each half
	stderrRead = 1 << 20  // bytes read in a process's life: a flood fills the pipe, and then blocks its writer
)

// stderrTail keeps the first and last bytes of a pipe: a Go crash starts with what matters, a log ends with it.
type stderrTail struct {
	mu   sync.Mutex
	head []byte // protected by mu
	last []byte // protected by mu
}

// drain reads until the end of the pipe or of the budget.
func (t *stderrTail) drain(r *os.File) {
	buf := make([]byte, 4<<10)
	for budget := stderrRead; budget > 0; {
		n, err := r.Read(buf[:min(len(buf), budget)])
		budget -= n
		t.add(buf[:n])
		if err != nil {
			return
		}
	}
}

func (t *stderrTail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := min(len(b), stderrKept/2-len(t.head))
	t.head = append(t.head, b[:n]...)
	t.last = append(t.last, b[n:]...)
	if over := len(t.last) - stderrKept/2; over > 0 {
		t.last = append(t.last[:0], t.last[over:]...)
	}
}

// text is fit for a log, and at most vmmproto.MaxDetail long.
func (t *stderrTail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return vmmproto.CleanText(string(t.head) + string(t.last))
}
