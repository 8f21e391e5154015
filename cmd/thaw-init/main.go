//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command thaw-init is PID 1 of every Thaw guest: it sets the machine up,
// serves the host over vsock, collects the dead and ends the machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/boot"
)

// Memory of the agent: it shares the machine with jobs, and lives on little.
const (
	gcPercent   = 50
	memoryLimit = 64 << 20 // soft: collect harder near it
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "thaw-init: runs as PID 1 of a guest only")
		os.Exit(2)
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	defer func() {
		if r := recover(); r != nil {
			boot.Fatal(fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
		}
	}()
	boot.Fatal(run())
}

// run boots and serves. It returns only with an error.
func run() error {
	m, err := boot.Boot(context.Background())
	if err != nil {
		return err
	}
	// Any context id: a restored machine may have got another.
	l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, agentproto.Port, nil)
	if err != nil {
		return fmt.Errorf("listen on vsock port %d: %w", agentproto.Port, err)
	}
	go m.AnnounceReady(func() (net.Conn, error) { return vsock.Dial(vsock.Host, agentproto.ReadyPort, nil) })
	if err := m.Serve(hostOnly{l}); err != nil {
		return err
	}
	// The server closes its listener only when the machine ends.
	if m.Server.Closing() {
		select {}
	}
	return errors.New("listener was closed")
}

// hostOnly refuses peers other than the host: vsock has a loopback, and what
// is in the guest is not to be trusted with the agent.
type hostOnly struct{ *vsock.Listener }

// Accept returns the next connection of the host's.
func (l hostOnly) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if a, ok := c.RemoteAddr().(*vsock.Addr); ok && a.ContextID == vsock.Host {
			return c, nil
		}
		c.Close()
	}
}
