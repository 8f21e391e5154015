package generation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/sockdiag"
)

// Dir is where processes of a guest find the files.
const Dir = "/run/thaw"

// Renewer does the steps. Not safe for concurrent use.
type Renewer struct {
	random *os.File
	files  *files
	diag   *sockdiag.Conn // nil in a machine without network devices
	flags  []*os.File     // of each network device
	pool   poolInfo
}

// New opens what the steps need, in a directory that exists, and gives the
// machine an id.
func New(dir string) (*Renewer, error) {
	r := new(Renewer)
	var err error
	if r.random, err = os.Open("/dev/urandom"); err != nil {
		return nil, fmt.Errorf("generation: open random device: %w", err)
	}
	if r.files, err = openFiles(dir); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	var id [agentproto.MachineIDSize]byte
	if _, err = unix.Getrandom(id[:], 0); err != nil {
		return nil, errors.Join(fmt.Errorf("generation: make machine id: %w", err), r.Close())
	}
	if err := r.files.setMachineID(id[:]); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err = r.findInterfaces("/sys/class/net"); err == nil && len(r.flags) > 0 {
		r.diag, err = sockdiag.Open()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// findInterfaces opens the flags of every interface besides loopback. None
// comes later: devices are those that the machine booted with, and jobs may
// not make any.
func (r *Renewer) findInterfaces(path string) error {
	names, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("generation: list interfaces: %w", err)
	}
	for _, n := range names {
		if n.Name() == "lo" {
			continue
		}
		f, err := os.Open(filepath.Join(path, n.Name(), "flags"))
		if err != nil {
			return fmt.Errorf("generation: open interface: %w", err)
		}
		r.flags = append(r.flags, f)
	}
	return nil
}

// networkUp reports whether any interface besides loopback is up. What cannot
// be read is.
func (r *Renewer) networkUp() bool {
	for _, f := range r.flags {
		var b [16]byte
		n, err := unix.Pread(int(f.Fd()), b[:], 0)
		if err != nil {
			return true
		}
		flags, err := strconv.ParseUint(strings.TrimSpace(string(b[:n])), 0, 32)
		if err != nil || flags&unix.IFF_UP != 0 {
			return true
		}
	}
	return false
}

// Close closes what New opened.
func (r *Renewer) Close() error {
	if r.files != nil {
		r.files.close()
	}
	var err error
	if r.diag != nil {
		err = r.diag.Close()
	}
	for _, f := range r.flags {
		err = errors.Join(err, f.Close())
	}
	return errors.Join(err, r.random.Close())
}

// Renew makes the machine that of the generation. An error leaves some steps
// undone: the machine must not go on then. Doing it again does all of them.
//
// Preconditions: g is valid. Every job is frozen.
func (r *Renewer) Renew(g agentproto.Generation) (agentproto.GenerationResult, error) {
	res := agentproto.GenerationResult{Number: g.Number}
	began := time.Now()
	start := began
	res.WallBefore = began.UnixNano()
	for _, step := range [...]struct {
		took *time.Duration
		do   func() error
	}{
		{&res.Steps.Random, func() error { return r.reseed(g.Seed) }},
		{&res.Steps.Clock, func() error { return setClock(g.Wall, began) }},
		{&res.Steps.Identity, func() error { return r.identify(g) }},
		{&res.Steps.Connections, func() (err error) { res.Destroyed, err = r.disconnect(); return err }},
		{&res.Steps.File, func() error { return r.files.setNumber(g.Number) }},
	} {
		if err := step.do(); err != nil {
			return res, err
		}
		now := time.Now()
		*step.took = now.Sub(start) // by the monotonic clock, which was not set
		start = now
	}
	res.Wall = start.UnixNano()
	return res, nil
}

// reseed gives the kernel's generator the seed and has it start anew from its
// pool at once.
func (r *Renewer) reseed(seed []byte) error {
	r.pool.entropyBits, r.pool.size = agentproto.SeedSize*8, agentproto.SeedSize
	copy(r.pool.buf[:], seed)
	fd := int(r.random.Fd())
	err := addEntropy(fd, &r.pool)
	clear(r.pool.buf[:])
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.RNDRESEEDCRNG, 0)
	}
	if err != nil {
		return fmt.Errorf("generation: reseed: %w", err)
	}
	return nil
}

// setClock sets the wall clock to what it was on the host when this began.
func setClock(wall int64, began time.Time) error {
	ts := unix.NsecToTimespec(wall + int64(time.Since(began)))
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("generation: set clock: %w", err)
	}
	return nil
}

func (r *Renewer) identify(g agentproto.Generation) error {
	if err := r.files.setMachineID(g.MachineID); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(g.Hostname)); err != nil {
		return fmt.Errorf("generation: set hostname: %w", err)
	}
	return nil
}

// disconnect ends connections to outside the machine. Without an interface
// there are none, and where all are down none can speak.
func (r *Renewer) disconnect() (int64, error) {
	if r.diag == nil || !r.networkUp() {
		return 0, nil
	}
	n, err := r.diag.DestroyOutside()
	if errors.Is(err, sockdiag.ErrLingering) {
		err = &agentproto.Error{Code: agentproto.CodeLingering, Message: err.Error()}
	}
	return int64(n), err
}
