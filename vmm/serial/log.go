package serial

import "sync"

// Log keeps the first half and the last half of its size: how a boot began
// and how it ended tell most. All methods may be called from any goroutine.
type Log struct {
	mu      sync.Mutex
	head    []byte // protected by mu, as is the rest
	headMax int
	tail    []byte // a ring once it is full
	next    int    // where the ring goes on
	full    bool
	dropped int64
}

// NewLog returns a log that keeps up to size bytes, at least 2.
func NewLog(size int) *Log {
	size = max(size, 2)
	return &Log{headMax: size / 2, tail: make([]byte, size-size/2)}
}

// WriteByte appends c, which no input makes fail.
func (l *Log) WriteByte(c byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.head) < l.headMax {
		l.head = append(l.head, c)
		return nil
	}
	if l.full {
		l.dropped++
	}
	l.tail[l.next] = c
	if l.next++; l.next == len(l.tail) {
		l.next, l.full = 0, true
	}
	return nil
}

// Bytes returns what is kept. dropped is how many bytes are missing between
// its halves.
func (l *Log) Bytes() (kept []byte, dropped int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept = append(kept, l.head...)
	if l.full {
		kept = append(kept, l.tail[l.next:]...)
	}
	return append(kept, l.tail[:l.next]...), l.dropped
}

// Tail returns the last bytes, at most n.
func (l *Log) Tail(n int) []byte {
	kept, _ := l.Bytes()
	return kept[max(0, len(kept)-n):]
}
