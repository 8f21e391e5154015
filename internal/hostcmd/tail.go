package hostcmd

import (
	"bytes"
	"sync"
)

// KeptOutput bounds what is kept of a program's output, in bytes: the end, where
// the reason of a failure stands.
const KeptOutput = 1 << 20

// tail keeps the last KeptOutput bytes written to it. A program's two output
// streams are copied by two goroutines.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer // protected by mu
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	p = p[max(0, len(p)-KeptOutput):]
	if over := t.buf.Len() + len(p) - KeptOutput; over > 0 {
		t.buf.Next(over)
	}
	t.buf.Write(p)
	return n, nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
