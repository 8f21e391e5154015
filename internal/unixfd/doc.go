// Package unixfd sends and receives messages with file descriptors over Unix sockets.
//
// It works on anything that is a syscall.Conn: a *net.UnixConn, or an *os.File made by [Pair]. Deadlines
// are those of the connection itself. Sizes and counts are bounded on both sides, descriptors are
// received close-on-exec, and a message that does not fit is refused with every received descriptor closed:
// a hostile peer can neither fill the descriptor table nor have half a message taken for a whole one.
package unixfd

import (
	"errors"
	"fmt"
)

// MaxFiles is the most descriptors that one message may carry: SCM_MAX_FD of the kernel (unix(7)).
const MaxFiles = 253

// Errors that callers branch on. They come wrapped in a [MessageError] when a peer's message caused them.
var (
	// ErrTruncated: the message was longer than the buffer (MSG_TRUNC).
	ErrTruncated = errors.New("message longer than the buffer")
	// ErrTooManyFiles: the message carried more descriptors than the receiver takes (MSG_CTRUNC), or than may be sent.
	ErrTooManyFiles = errors.New("too many descriptors")
	// ErrUnexpectedControl: the message carried control data that is not descriptors.
	ErrUnexpectedControl = errors.New("control data that is not descriptors")
)

// MessageError is a received message that was thrown away. Its descriptors have been closed.
type MessageError struct {
	Bytes int   // bytes received
	Files int   // descriptors received and closed
	Err   error // one of the sentinels above
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("unixfd: receive message (%d bytes, %d descriptors): %v", e.Bytes, e.Files, e.Err)
}

func (e *MessageError) Unwrap() error { return e.Err }
