// Package output passes the output of a program in a guest on, up to a limit, as whole
// UTF-8 sequences where it is text.
package output

import (
	"sync"
	"unicode/utf8"

	"thaw/api"
)

// chunkBytes is how many bytes of output go into one event.
const chunkBytes = 32 << 10

// Stream passes one stream of a program on. What waits in emit slows the program
// down whose reader is slow.
type Stream struct {
	emit func([]byte) error // may wait

	mu   sync.Mutex
	left int64 // protected by mu, as is the rest; bytes that may still be passed on
	info api.StreamInfo
	held []byte // an unfinished UTF-8 sequence at the end of what came so far
}

// New returns a stream that gives emit at most limit bytes, a chunk at a time.
func New(limit int64, emit func([]byte) error) *Stream { return &Stream{emit: emit, left: limit} }

// Write passes on what the limit leaves and counts the rest. The guest's agent
// keeps to the same limit; this one holds when the guest does not.
func (o *Stream) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(p)
	if int64(len(p)) > o.left {
		o.info.Dropped += int64(len(p)) - o.left
		p = p[:o.left]
	}
	o.left -= int64(len(p))
	for len(p) > 0 {
		chunk := p[:min(len(p), chunkBytes)]
		p = p[len(chunk):]
		if err := o.send(chunk, false); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// Flush sends an unfinished sequence that nothing more will finish.
func (o *Stream) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.held) > 0 {
		// It is only refused when the program is being ended: the bytes are not missed.
		_ = o.send(nil, true)
	}
}

// send puts one event into the log, with what was held back. Preconditions: mu
// is held.
func (o *Stream) send(chunk []byte, last bool) error {
	b := append(o.held, chunk...)
	o.held = nil
	if !last {
		b, o.held = splitRune(b)
	}
	if len(b) == 0 {
		return nil
	}
	o.info.Bytes += int64(len(b))
	return o.emit(b)
}

// splitRune cuts an unfinished UTF-8 sequence off the end of b.
func splitRune(b []byte) (whole, rest []byte) {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-i], append([]byte(nil), tail...)
			}
			break
		}
	}
	return b, nil
}

// Stats is what went through, with what the guest says it dropped before.
func (o *Stream) Stats(droppedInGuest int64) api.StreamInfo {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.info
	i.Dropped += max(0, droppedInGuest)
	return i
}
