// Package labproto is the language between the host and the lab's init.
//
// One virtio-serial port carries a yamux session; each stream of it serves one
// request. The side on the host opens a stream and sends one Request frame; the
// lab answers with one Reply frame. After the reply to "connect" the stream
// carries raw bytes; after the reply to "exec" it carries frames until Exit:
//
//	host                                lab
//	 │ ── Request{exec, argv…} ─────────▶ │
//	 │ ◀───────────────── Reply{pid} ──── │
//	 │ ── Stdin* · CloseStdin ──────────▶ │
//	 │ ◀──────────── Stdout* · Stderr* ── │
//	 │ ◀─────────────────────── Exit ──── │
//
// A host that goes away in the middle (end of stream before Exit) ends the
// command: the lab kills its process group. Signals have streams of their own
// (Request{signal}): behind unread standard input they would not arrive.
//
// A frame is an 8-byte header and a payload:
//
//	offset 0  type      u8
//	offset 1  reserved  3 bytes, zero
//	offset 4  length    u32, little endian, at most MaxData (Request: MaxRequest)
package labproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Type says what a frame carries.
type Type uint8

const (
	TypeRequest    Type = 1 // JSON Request, first frame of a stream
	TypeReply      Type = 2 // JSON Reply, the lab's first frame
	TypeStdin      Type = 3 // bytes for the command's standard input
	TypeCloseStdin Type = 4 // empty: standard input has ended
	TypeStdout     Type = 5 // bytes that the command wrote
	TypeStderr     Type = 6
	TypeExit       Type = 7 // JSON Exit, last frame of a stream
)

const (
	headerSize = 8
	// MaxData bounds the payload of every frame but Request, in bytes.
	MaxData = 64 << 10
	// MaxRequest bounds the payload of a Request, in bytes: argv and environment
	// together are bounded to 2 MiB by Linux, half of that is plenty here.
	MaxRequest = 1 << 20
)

// ErrFrame is wrapped by every error about bytes that are no valid frame.
var ErrFrame = errors.New("labproto: bad frame")

// Frame is one unit on a stream. Data is valid until the next Read.
type Frame struct {
	Type Type
	Data []byte
}

// Reader takes frames from a stream. It never reads past the frame it returns,
// so that the raw bytes after a Reply stay in the stream.
type Reader struct {
	r   io.Reader
	buf []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Read returns the next frame; io.EOF only at a frame boundary,
// io.ErrUnexpectedEOF inside a frame.
func (r *Reader) Read() (Frame, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return Frame{}, err
	}
	t, n, err := parseHeader(h)
	if err != nil {
		return Frame{}, err
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, n)
	}
	data := r.buf[:n]
	if _, err := io.ReadFull(r.r, data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, err
	}
	return Frame{Type: t, Data: data}, nil
}

func parseHeader(h [headerSize]byte) (Type, uint32, error) {
	t := Type(h[0])
	if t < TypeRequest || t > TypeExit {
		return 0, 0, fmt.Errorf("%w: unknown type %d", ErrFrame, h[0])
	}
	if h[1]|h[2]|h[3] != 0 {
		return 0, 0, fmt.Errorf("%w: reserved bytes are not zero", ErrFrame)
	}
	n := binary.LittleEndian.Uint32(h[4:])
	limit := uint32(MaxData)
	if t == TypeRequest {
		limit = MaxRequest
	}
	if n > limit {
		return 0, 0, fmt.Errorf("%w: length %d is over %d", ErrFrame, n, limit)
	}
	return t, n, nil
}

// Write sends one frame with a single call of w.Write, so that concurrent
// writers need no more than a lock around this call.
func Write(w io.Writer, t Type, data []byte) error {
	b := make([]byte, headerSize+len(data))
	b[0] = byte(t)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(data)))
	if _, _, err := parseHeader([headerSize]byte(b)); err != nil {
		return err
	}
	copy(b[headerSize:], data)
	_, err := w.Write(b)
	return err
}
