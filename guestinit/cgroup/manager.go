package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is where cgroup v2 is mounted in a guest.
const Mount = "/sys/fs/cgroup"

// wanted are the controllers that execs are limited and measured by.
var wanted = []string{"cpu", "io", "memory", "pids"}

// Config of a Manager.
type Config struct {
	Mount string // of a cgroup v2 hierarchy
	Name  string // of the parent group made below it
	// ReserveBytes is kept from all jobs together, for agent and kernel; 0
	// sets no common limit.
	ReserveBytes int64
}

// Manager makes and removes groups. It keeps one empty group ready, since
// making one costs more than anything else in the start of an exec.
// Safe for concurrent use.
type Manager struct {
	path        string
	dir         *os.File // of the parent group
	freeze      *os.File // cgroup.freeze of the parent, open since opening costs time
	events      *os.File // cgroup.events of the parent
	controllers []string
	next        atomic.Uint64

	mu     sync.Mutex
	spare  *Group // protected by mu
	later  later  // protected by mu
	closed bool   // protected by mu
	wg     sync.WaitGroup
}

// New makes the parent group and enables the controllers that exist. An
// existing parent of that name is taken over.
func New(cfg Config) (*Manager, error) {
	have, err := enable(cfg.Mount)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(cfg.Mount, cfg.Name)
	if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("cgroup: make parent: %w", err)
	}
	if _, err := enable(path); err != nil {
		return nil, err
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cgroup: open parent: %w", err)
	}
	m := &Manager{path: path, dir: dir, controllers: have}
	m.later = later{hurry: make(chan struct{}), groups: make(map[chan struct{}]struct{})}
	if m.freeze, err = os.OpenFile(filepath.Join(path, "cgroup.freeze"), os.O_WRONLY, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup: open freezer: %w", err), dir.Close())
	}
	if m.events, err = os.Open(filepath.Join(path, "cgroup.events")); err != nil {
		return nil, errors.Join(fmt.Errorf("cgroup: open events: %w", err), dir.Close(), m.freeze.Close())
	}
	if cfg.ReserveBytes > 0 && m.has("memory") {
		if err := m.reserve(cfg.ReserveBytes); err != nil {
			return nil, errors.Join(err, dir.Close(), m.freeze.Close(), m.events.Close())
		}
	}
	m.Refill()
	return m, nil
}

// enable turns on every wanted controller for the children of path and
// returns those that it has.
func enable(path string) ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("cgroup: read controllers: %w", err)
	}
	var have []string
	for _, c := range strings.Fields(string(raw)) {
		if slices.Contains(wanted, c) {
			have = append(have, c)
		}
	}
	if len(have) == 0 {
		return nil, nil
	}
	slices.Sort(have)
	// All in one write: the kernel waits for a grace period at each.
	all := "+" + strings.Join(have, " +")
	if err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte(all), 0); err != nil {
		return nil, fmt.Errorf("cgroup: enable %s: %w", all, err)
	}
	return have, nil
}

// reserve limits all jobs together to what the machine has less the reserve,
// but at least to half of it.
func (m *Manager) reserve(reserve int64) error {
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return fmt.Errorf("cgroup: size of memory: %w", err)
	}
	total := int64(si.Totalram) * int64(si.Unit)
	limit := max(total-reserve, total/2)
	if err := writeAt(m.dir, "memory.max", strconv.FormatInt(limit, 10)); err != nil {
		return fmt.Errorf("cgroup: limit jobs: %w", err)
	}
	return nil
}

func (m *Manager) has(controller string) bool { return slices.Contains(m.controllers, controller) }

// Controllers returns the names of the controllers in use, sorted.
func (m *Manager) Controllers() []string { return slices.Clone(m.controllers) }

// Skipped names what cannot be enforced here, with the reason.
func (m *Manager) Skipped() []string {
	var out []string
	for _, c := range wanted {
		if !m.has(c) {
			out = append(out, c+": no such controller in this cgroup v2 hierarchy")
		}
	}
	return out
}

// New returns an empty group without limits.
func (m *Manager) New() (*Group, error) {
	m.mu.Lock()
	g := m.spare
	m.spare = nil
	closed := m.closed
	m.mu.Unlock()
	if closed {
		return nil, errors.New("cgroup: manager is closed")
	}
	if g != nil {
		return g, nil
	}
	return m.make()
}

func (m *Manager) make() (*Group, error) {
	name := strconv.FormatUint(m.next.Add(1), 10)
	if err := unix.Mkdirat(int(m.dir.Fd()), name, 0o755); err != nil {
		return nil, fmt.Errorf("cgroup: make group: %w", err)
	}
	fd, err := unix.Openat(int(m.dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cgroup: open group: %w", err)
	}
	g := &Group{m: m, name: name, dir: os.NewFile(uintptr(fd), filepath.Join(m.path, name))}
	if m.has("memory") {
		// One process over the limit ends the whole exec: half of a job is
		// of no use, and the cause can be told.
		if err := writeAt(g.dir, "memory.oom.group", "1"); err != nil {
			g.Remove()
			return nil, fmt.Errorf("cgroup: set group: %w", err)
		}
		// Absent from kernels without swap.
		if err := writeAt(g.dir, "memory.swap.max", "0"); err != nil && !errors.Is(err, unix.ENOENT) {
			g.Remove()
			return nil, fmt.Errorf("cgroup: set group: %w", err)
		}
	}
	return g, nil
}

// Refill makes the spare group if there is none.
func (m *Manager) Refill() {
	m.mu.Lock()
	needed := m.spare == nil && !m.closed
	m.mu.Unlock()
	if !needed {
		return
	}
	g, err := m.make()
	if err != nil {
		return // the next New tries again and reports
	}
	m.mu.Lock()
	if m.spare == nil && !m.closed {
		m.spare, g = g, nil
	}
	m.mu.Unlock()
	if g != nil {
		g.rmdir()
	}
}

// Stats returns the counters of all groups together, past and present.
func (m *Manager) Stats() (Stats, error) { return readStats(m.dir, m.has) }

// KillAll kills every process of every group.
func (m *Manager) KillAll() error {
	if err := writeAt(m.dir, "cgroup.kill", "1"); err != nil {
		return fmt.Errorf("cgroup: kill all: %w", err)
	}
	return nil
}

// Close removes the spare and the parent, and waits for groups that are being
// removed. The parent stays if a group is still in use.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	spare := m.spare
	m.spare = nil
	m.mu.Unlock()
	if spare != nil {
		spare.rmdir()
	}
	m.hurry()
	m.wg.Wait()
	err := errors.Join(m.dir.Close(), m.freeze.Close(), m.events.Close())
	if rmErr := unix.Rmdir(m.path); rmErr != nil {
		err = errors.Join(err, fmt.Errorf("cgroup: remove parent: %w", rmErr))
	}
	return err
}

// rmdirPatience bounds the wait for killed processes to leave a group.
const rmdirPatience = 5 * time.Second
