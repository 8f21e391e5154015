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

	"thaw/guestinit/agentproto"
	"thaw/guestinit/boot"
	"thaw/guestinit/vsock"
)

// memoryLimit is for the agent, which shares the machine with jobs: collect harder near it.
// How much garbage is allowed below is Go's own default, from 4 MiB on. With half of that a
// collection came in the first cell of some templates' machines (docs/performance.md, "What
// a warm Python writes").
const memoryLimit = 64 << 20

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "thaw-init: runs as PID 1 of a guest only")
		os.Exit(2)
	}
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
	l, err := vsock.Listen(agentproto.Port)
	if err != nil {
		return err
	}
	go m.AnnounceReady(func() (net.Conn, error) { return vsock.Dial(vsock.Host, agentproto.ReadyPort) })
	if err := m.Serve(l); err != nil {
		return err
	}
	// The server closes its listener only when the machine ends.
	if m.Server.Closing() {
		select {}
	}
	return errors.New("listener was closed")
}
