package vmmchild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"thaw/internal/unixfd"
	"thaw/vmm/vmmproto"
)

// Errors of Connect.
var (
	errRefused = errors.New("vmmchild: nothing listens on this port")
	errBusy    = errors.New("vmmchild: too many connect requests are waiting")
)

// control is our end of the control socket.
type control struct {
	conn    *os.File
	machine Machine // set before serve

	sendMu sync.Mutex // keeps messages whole and in order

	mu sync.Mutex
	// waiting has the connect requests without an answer, by id; at most vmmproto.MaxOutstanding.
	waiting map[uint64]chan *os.File // protected by mu
	lastID  uint64                   // protected by mu

	// packet is room for what is received. There is one: a ping comes every few seconds for
	// as long as the machine lives, and its heap is not collected before it is large.
	packet []byte
	pings  int    // used by serve only
	told   []byte // console tail that the daemon has; used by serve only
}

func newControl(conn *os.File) *control {
	return &control{conn: conn, waiting: map[uint64]chan *os.File{}, packet: make([]byte, vmmproto.MaxMessage)}
}

func (c *control) send(m vmmproto.Message) error {
	b, err := vmmproto.Encode(m)
	if err != nil {
		return err
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	return unixfd.Send(c.conn, b)
}

// receive returns the next message. It is called by one goroutine at a time.
func (c *control) receive(maxFiles int) (vmmproto.Message, []*os.File, error) {
	n, files, err := unixfd.Recv(c.conn, c.packet, maxFiles)
	if err != nil {
		return nil, nil, err
	}
	m, err := vmmproto.DecodeFromDaemon(c.packet[:n], len(files))
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return m, files, nil
}

// collectPings is after how many pings the heap is collected, which nothing else does before
// it is megabytes: each leaves some 3 KiB, for as long as the machine lives. One that lives
// for seconds, or is just being restored, is spared it.
const collectPings = 128

// serve answers the daemon, one request after the other: a machine that hangs in a request does not answer the next
// ping, and that is how the daemon finds out. It returns the exit code for the case that nobody owns the machine any more.
func (c *control) serve() int {
	for {
		m, files, err := c.receive(vmmproto.MaxFiles)
		if err != nil {
			// The daemon is gone, or speaks another language.
			fmt.Fprintf(os.Stderr, "vmmchild: control socket: %v\n", err)
			return exitOrphan
		}
		if err := c.handle(m, files); err != nil {
			fmt.Fprintf(os.Stderr, "vmmchild: answer %s: %v\n", m.Kind(), err)
			return exitOrphan
		}
	}
}

func (c *control) handle(m vmmproto.Message, files []*os.File) error {
	switch m := m.(type) {
	case *vmmproto.Ping:
		err := c.send(&vmmproto.Pong{ID: m.ID, Console: c.newConsole()})
		if c.pings++; c.pings%collectPings == 0 {
			runtime.GC()
		}
		return err
	case *vmmproto.Pause:
		return c.done(m.ID, c.machine.Pause())
	case *vmmproto.Resume:
		return c.done(m.ID, c.machine.Resume())
	case *vmmproto.Stop:
		c.machine.Stop()
		return c.done(m.ID, nil)
	case *vmmproto.StatsRequest:
		return c.send(&vmmproto.Stats{ID: m.ID, Values: c.machine.Stats()})
	case *vmmproto.ConsoleRequest:
		return c.send(&vmmproto.Console{ID: m.ID, Tail: tail(c.machine.Console())})
	case *vmmproto.SetBalloon:
		return c.done(m.ID, c.machine.SetBalloon(m.MiB))
	case *vmmproto.MemoryStats:
		return c.memoryStats(m.ID)
	case *vmmproto.Restore:
		return c.restore(m, files)
	case *vmmproto.Save:
		return c.save(m, files)
	case *vmmproto.Changes:
		return c.changes(m.ID)
	case *vmmproto.Connected:
		return c.answer(m.ID, files[0])
	case *vmmproto.Refused:
		return c.answer(m.ID, nil)
	default:
		return fmt.Errorf("a %s has no place here", m.Kind())
	}
}

// memoryWait is how long a guest may take to say how it uses its memory: other requests and pings wait meanwhile, and
// a hostile guest never answers.
const memoryWait = time.Second

func (c *control) memoryStats(id uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), memoryWait)
	defer cancel()
	values, err := c.machine.MemoryStats(ctx)
	if err != nil {
		return c.done(id, err)
	}
	return c.send(&vmmproto.Stats{ID: id, Values: values})
}

func (c *control) done(id uint64, err error) error {
	m := &vmmproto.Done{ID: id}
	if err != nil {
		m.Error = vmmproto.CleanText(err.Error())
	}
	return c.send(m)
}

// newConsole returns the console's tail when it is not what the daemon has already.
func (c *control) newConsole() []byte {
	now := tail(c.machine.Console())
	if bytes.Equal(now, c.told) {
		return nil
	}
	c.told = bytes.Clone(now)
	return c.told
}

// connect is Request.Connect. The daemon answers every request, and when it is gone the process ends, so there is
// no time-out here beyond one that guards against a daemon's callback that never returns.
func (c *control) connect(port uint32) (*os.File, error) {
	answer := make(chan *os.File, 1)
	c.mu.Lock()
	if len(c.waiting) >= vmmproto.MaxOutstanding {
		c.mu.Unlock()
		return nil, errBusy
	}
	c.lastID++
	id := c.lastID
	c.waiting[id] = answer
	c.mu.Unlock()

	if err := c.send(&vmmproto.Connect{ID: id, Port: port}); err != nil {
		return nil, err
	}
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	select {
	case f := <-answer:
		if f == nil {
			return nil, errRefused
		}
		return f, nil
	case <-timeout.C:
		// The request stays in the table, because the daemon counts it as outstanding too; a late answer is
		// closed by whoever finds nobody waiting.
		go func() {
			if f := <-answer; f != nil {
				f.Close()
			}
		}()
		return nil, fmt.Errorf("vmmchild: connect to port %d: no answer from the daemon", port)
	}
}

func (c *control) answer(id uint64, f *os.File) error {
	c.mu.Lock()
	waiting, ok := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if !ok {
		if f != nil {
			f.Close()
		}
		return fmt.Errorf("no connect request %d is waiting", id)
	}
	waiting <- f
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
