package labproto

import (
	"io"
	"time"

	"github.com/hashicorp/yamux"
)

// MuxConfig is the session's configuration on both sides.
//
// The lab is 10 to 20 times slower than its host, and on a busy computer it can
// stand still for seconds. So no timer of the session may end it: whether the
// lab lives is decided by its QEMU process and by the supervisor's own probe.
func MuxConfig() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive = false
	c.StreamOpenTimeout = 0  // no limit
	c.StreamCloseTimeout = 0 // a half-closed stream may go on reading for ever
	c.ConnectionWriteTimeout = 5 * time.Minute
	c.LogOutput = io.Discard // every error also reaches a caller
	return c
}
