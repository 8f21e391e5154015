package vmmproc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/unixfd"
	"thaw/vmm/jail"
	"thaw/vmm/spawner"
)

// spawners are the daemon's, one for each thaw-vmm. One is started with the first process that is wanted of it, and
// ends with the last.
var spawners makers

// makers keeps spawners by binary.
type makers struct {
	mu   sync.Mutex
	list map[string]*maker // protected by mu
}

// askPatience bounds the wait for a spawner's answer: longer than it may wait for the child before (birthPatience there).
const askPatience = 10 * time.Second

// maker is a spawner in use.
//
// PDEATHSIG is sent when the *thread* that counts as a process's parent ends, not the process, and Go ends threads whose
// locked goroutine returns. What a spawner starts are children of the thread that started the spawner. So one goroutine,
// the keeper, does that, locked to its thread for as long as there is any of them.
type maker struct {
	binary string
	conn   *os.File
	users  int           // processes and those who ask for one; protected by makers.mu
	unused chan struct{} // closed when there are none, and will be none
	over   chan struct{} // closed when the keeper is done

	patience time.Duration // for one answer

	asking sync.Mutex  // one request at a time
	broken atomic.Bool // it did not answer one
}

// bear has the binary's spawner start a process; copied is of the [spawner.Request]. Without one, pidfd is nil; with one the
// caller holds a use of the maker, to be put back when the process has been reaped, also if it has been killed already, and
// the error says why.
func (l *makers) bear(s *Spec, copied bool, stderr, control *os.File) (m *maker, pid int, pidfd *os.File, err error) {
	for range 2 { // the spawner may have died since it was last asked
		if m, err = l.get(s.Binary); err != nil {
			return nil, 0, nil, err
		}
		pid, pidfd, err = m.ask(spawner.Request{UID: s.UID, GID: s.GID, Copied: copied}, stderr, control, s.Cgroup)
		if pidfd != nil {
			return m, pid, pidfd, err
		}
		broken := m.broken.Load()
		l.put(m)
		// One that is only late may still start a process with these files: no second one may have them, too.
		if !broken || errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return nil, 0, nil, err
}

// get returns the spawner of a binary, which put gives back.
func (l *makers) get(binary string) (*maker, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m := l.list[binary]; m != nil && !m.broken.Load() {
		m.users++
		return m, nil
	}
	m, err := newMaker(binary)
	if err != nil {
		return nil, err
	}
	if l.list == nil {
		l.list = map[string]*maker{}
	}
	l.list[binary] = m
	return m, nil
}

// put gives a spawner back, and ends it if nobody uses it any more.
func (l *makers) put(m *maker) {
	l.mu.Lock()
	m.users--
	last := m.users == 0
	if last && l.list[m.binary] == m {
		delete(l.list, m.binary)
	}
	l.mu.Unlock()
	if last {
		m.conn.Close() // its end is the spawner's
		close(m.unused)
		<-m.over
	}
}

func newMaker(binary string) (*maker, error) {
	if err := checkBinary(binary); err != nil {
		return nil, err
	}
	ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	m := &maker{binary: binary, conn: ours, users: 1, patience: askPatience, unused: make(chan struct{}), over: make(chan struct{})}
	started := make(chan error, 1)
	go m.keep(theirs, started)
	if err := <-started; err != nil {
		ours.Close()
		return nil, fmt.Errorf("vmmproc: start %s: %w", binary, err)
	}
	return m, nil
}

// keep starts the spawner, and returns when it has ended and nobody uses it.
func (m *maker) keep(conn *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(m.over)
	pid, err := startSpawner(m.binary, conn)
	started <- err
	if err != nil {
		return
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	<-m.unused
}

func startSpawner(binary string, conn *os.File) (pid int, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	number, err := unixfd.Number(conn)
	if err != nil {
		return 0, err
	}
	return syscall.ForkExec(binary, []string{jail.ProgramName, spawner.Argument}, &syscall.ProcAttr{
		Env:   spawner.Environment(),
		Files: []uintptr{null.Fd(), null.Fd(), 2, uintptr(number)}, // positions: jail.Control
		Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL},
	})
}

// ask has the spawner start a process. One that gives no answer is asked nothing more.
func (m *maker) ask(r spawner.Request, stderr, control, cgroup *os.File) (int, *os.File, error) {
	m.asking.Lock()
	defer m.asking.Unlock()
	if m.broken.Load() {
		return 0, nil, errNoSpawner
	}
	pid, pidfd, err := spawner.Ask(m.conn, r, time.Now().Add(m.patience), stderr, control, cgroup)
	var failed *spawner.Error
	if err != nil && !errors.As(err, &failed) {
		m.broken.Store(true)
		if number, err := unixfd.Number(m.conn); err == nil {
			unix.Shutdown(number, unix.SHUT_RDWR) // if it is only late it cannot answer, and so lets no child go on
		}
	}
	return pid, pidfd, err
}

// errNoSpawner says that a spawner has ended while several waited for it.
var errNoSpawner = errors.New("spawner has ended")

func checkBinary(path string) error {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o001 == 0) {
		err = fmt.Errorf("%s: not a file that every user may execute", path)
	}
	if err != nil {
		return fmt.Errorf("vmmproc: thaw-vmm binary: %w", err)
	}
	return nil
}
