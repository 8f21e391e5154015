package httpapi

import (
	"net"
	"net/http"
	"sync"
)

// maxConns is how many connections a user may have at a time: more than the
// jobs that it may have, each followed by a stream of its own. One user must not
// take the daemon's descriptors, or its memory, from the others.
const maxConns = 256

// conns counts connections by user. Its methods may be called from any goroutine.
type conns struct {
	mu    sync.Mutex
	users map[net.Conn]uint32 // protected by mu
	open  map[uint32]int      // protected by mu
}

func newConns() *conns { return &conns{users: map[net.Conn]uint32{}, open: map[uint32]int{}} }

// take counts a connection of a user, or returns false when that would be too many.
func (k *conns) take(c net.Conn, uid uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open[uid] >= maxConns {
		return false
	}
	k.users[c] = uid
	k.open[uid]++
	return true
}

// state is the server's ConnState: it gives back what take took.
func (k *conns) state(c net.Conn, s http.ConnState) {
	if s != http.StateClosed && s != http.StateHijacked {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	uid, ok := k.users[c]
	if !ok {
		return
	}
	delete(k.users, c)
	if k.open[uid]--; k.open[uid] == 0 {
		delete(k.open, uid)
	}
}
