package vmmproto

import "fmt"

// Protocol is the number of the language. It is raised with each change of what is sent: of a kind, a field, an order, that of
// descriptors too, or what one means. A test fails when the encoding is another than the number's.
//
// The first is 2, which no message without a number begins with: those began with a truth, or with a number of bytes in pages.
const Protocol = 2

// ProtocolError says that the other end speaks another protocol: it is of another build. The errors that wrap it wrap [ErrInvalid]
// too.
type ProtocolError struct {
	Want, Got uint64
}

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("protocol %d is wanted, %d came: the other end is of another build, restart thawd", e.Want, e.Got)
}

// protocol codes the number.
func (c *coder) protocol() {
	got := uint64(Protocol)
	if c.uint64(&got); c.err == nil && got != Protocol {
		c.fail(&ProtocolError{Want: Protocol, Got: got})
	}
}
