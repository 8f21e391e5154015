package agent

import (
	"errors"
	"sync"
)

// errGone is returned to who has something to send for an exec that nobody
// waits for any more.
var errGone = errors.New("agent: nobody waits for the exec")

// link says which connection an exec's frames go to. That of an ordinary exec
// is set once; a persistent one's comes and goes:
//
//	            attach                     connection lost
//	detached ───────────▶ attached ──────────────────────────▶ detached
//	                       │    ▲ attach: closes the old one
//	                       │    └───────┐
//	                       └────────────┘
//	                       │ EXIT was sent
//	                       ▼
//	                      over
//
// Senders count themselves in and out, so that who attaches knows exactly
// what went over the earlier connections: it waits until none is left.
type link struct {
	mu      sync.Mutex
	changed sync.Cond
	c       *conn // nil if detached; protected by mu
	senders int   // with a connection in their hands; protected by mu
	gone    bool  // nobody will attach any more; protected by mu
	over    bool  // EXIT was sent; protected by mu
}

func newLink() *link {
	l := new(link)
	l.changed.L = &l.mu
	return l
}

// acquire waits for a connection to send on. The caller must release it.
func (l *link) acquire() (*conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.c == nil && !l.gone {
		l.changed.Wait()
	}
	if l.c == nil {
		return nil, errGone
	}
	l.senders++
	return l.c, nil
}

// acquireNow is acquire without waiting: nil if there is no connection. It
// calls settle first, in the same critical section.
func (l *link) acquireNow(settle func()) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	settle()
	if l.c != nil {
		l.senders++
	}
	return l.c
}

// release ends a use of c and notes what came of it.
func (l *link) release(c *conn, lost bool, note func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	note()
	if lost && l.c == c {
		l.c = nil
	}
	l.senders--
	l.changed.Broadcast()
}

// use calls do if c is the connection that is attached.
func (l *link) use(c *conn, do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c != c {
		return nil
	}
	return do()
}

// attach makes c the connection. It closes the one before and waits for its
// senders; then look is called, before anything is sent to c. It reports
// false if there is nothing to attach to any more.
func (l *link) attach(c *conn, look func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.c != nil && l.c != c || l.senders > 0 {
		if l.c != nil && l.c != c {
			l.c.nc.Close()
			l.c = nil
			continue
		}
		// If c itself is attached, EXIT has just been sent to it.
		l.changed.Wait()
	}
	if l.over || l.gone {
		return false
	}
	look()
	l.c = c
	l.changed.Broadcast()
	return true
}

// detach forgets c.
func (l *link) detach(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c == c {
		l.c = nil
	}
}

// attached reports whether there is a connection.
func (l *link) attached() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c != nil
}

// abandon wakes who waits for a connection, for good. A connection that there
// is stays.
func (l *link) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	l.changed.Broadcast()
}
