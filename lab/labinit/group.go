package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"thaw/lab/labproto"
)

// group is a command's process group. It may be signalled only while its leader
// has not been reaped: afterwards the number can be another's.
type group struct {
	mu    sync.Mutex
	id    int
	ended bool // protected by mu
}

// groups holds the *group of each running command by its id.
var groups sync.Map

func newGroup(id int) *group {
	g := &group{id: id}
	groups.Store(id, g)
	return g
}

func (g *group) signal(sig syscall.Signal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		// A group with no process left is what is wanted, not an error.
		_ = unix.Kill(-g.id, sig)
	}
}

// awaitLeader returns when the command has ended, not reaped yet, and the rest
// of its group was killed: a child left behind would hold the output open.
func (g *group) awaitLeader() {
	for {
		err := unix.Waitid(unix.P_PID, g.id, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	g.signal(unix.SIGKILL)
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	groups.Delete(g.id)
}

func serveSignal(s net.Conn, req labproto.Request) error {
	g, ok := groups.Load(req.PID)
	if !ok {
		return fmt.Errorf("labinit: signal %d: no such command", req.PID)
	}
	g.(*group).signal(syscall.Signal(req.Signal))
	return labproto.WriteJSON(s, labproto.TypeReply, labproto.Reply{})
}
