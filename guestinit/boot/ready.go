package boot

import (
	"net"
	"os"
	"time"

	"thaw/guestinit/agentproto"
)

// AnnounceReady tells the host that the agent listens: by a frame to the ready
// port, which is the fast way, and by a line on the console.
func (m *Machine) AnnounceReady(dial func() (net.Conn, error)) {
	if err := m.sendReady(dial); err != nil {
		Log("ready port: %v", err)
	}
	// One write: the console is slow by the byte.
	_, _ = os.Stdout.WriteString("thaw-init: ready\n")
}

func (m *Machine) sendReady(dial func() (net.Conn, error)) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	frame, err := agentproto.AppendMessage(nil, agentproto.FrameReady, m.Server.Info())
	if err != nil {
		return err
	}
	// A host that accepts and never reads must not hold PID 1 up.
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = c.Write(frame)
	return err
}
