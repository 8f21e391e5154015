// Package tail keeps the end of a stream.
package tail

import "io"

// Tail keeps the last Max bytes that were added. Its memory grows with what is
// added, up to Max. Not safe for concurrent use.
type Tail struct {
	Max     int
	buf     []byte
	pos     int   // of the oldest byte, once len(buf) == max
	Dropped int64 // bytes that are not kept any more
}

// Add adds bytes, and drops the oldest of those that are too many.
func (t *Tail) Add(b []byte) {
	if over := len(b) - t.Max; over > 0 {
		// More than fits: all that was kept goes, and the front of b.
		t.Dropped += int64(over) + int64(len(t.buf))
		t.buf, t.pos = append(t.buf[:0], b[over:]...), 0
		return
	}
	if room := t.Max - len(t.buf); room > 0 {
		n := min(room, len(b))
		t.buf = append(t.buf, b[:n]...)
		b = b[n:]
	}
	for len(b) > 0 {
		n := copy(t.buf[t.pos:], b)
		t.pos = (t.pos + n) % t.Max
		t.Dropped += int64(n)
		b = b[n:]
	}
}

// Reader reads what is kept, oldest first.
func (t *Tail) Reader() io.Reader { return &reader{rest: [2][]byte{t.buf[t.pos:], t.buf[:t.pos]}} }

type reader struct{ rest [2][]byte }

func (r *reader) Read(b []byte) (int, error) {
	for i := range r.rest {
		if len(r.rest[i]) > 0 {
			n := copy(b, r.rest[i])
			r.rest[i] = r.rest[i][n:]
			return n, nil
		}
	}
	return 0, io.EOF
}
