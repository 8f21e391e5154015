package lab

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"thaw/internal/checkout"
)

// Options says what kind of lab to start. The zero value is a good lab.
type Options struct {
	// StateDir holds the lab's sockets, logs and status file. Empty is a new
	// folder that goes with the lab. Its path must be short, since Unix sockets
	// lie in it, and without white space, since the kernel's command line names it.
	StateDir string `json:"state_dir,omitempty"`
	// MemoryMiB is the lab's memory; 0 is 6144. It is taken from the host as the
	// lab touches it.
	MemoryMiB int `json:"memory_mib,omitempty"`
	// CPUs is the number of emulated CPUs; 0 is 2.
	CPUs int `json:"cpus,omitempty"`
	// Writable names folders of the host that the lab may write, each seen at
	// its own path.
	Writable []string `json:"writable,omitempty"`
	// Init is labinit's binary; empty is found or built by FindInit.
	Init string `json:"init,omitempty"`
	// BootTimeout bounds one start, from QEMU to the lab's answer; 0 is 90 s.
	BootTimeout time.Duration `json:"boot_timeout,omitempty"`
	// Service is a command that runs in the lab as long as the lab is up, such
	// as the daemon. It is started again with the lab.
	Service *Command `json:"service,omitempty"`
	// Forward maps a Unix socket to be made on the host to one in the lab.
	Forward map[string]string `json:"forward,omitempty"`
	// Log gets the lab's events; nil discards them.
	Log *slog.Logger `json:"-"`

	// control makes a socket that gives out streams of the lab.
	control bool
}

const (
	defaultMemoryMiB   = 6144
	defaultCPUs        = 2
	defaultBootTimeout = 90 * time.Second
	// minMemoryMiB is what the lab needs to come up.
	minMemoryMiB = 512
	maxCPUs      = 64
	// maxStateDir leaves room for the longest socket name below sun_path's 108.
	maxStateDir = 80
)

// normalise fills in defaults and refuses what can not work.
func (o Options) normalise() (Options, error) {
	if o.MemoryMiB == 0 {
		o.MemoryMiB = defaultMemoryMiB
	}
	if o.CPUs == 0 {
		o.CPUs = defaultCPUs
	}
	if o.BootTimeout == 0 {
		o.BootTimeout = defaultBootTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.MemoryMiB < minMemoryMiB:
		return o, fmt.Errorf("lab: %d MiB of memory: less than %d", o.MemoryMiB, minMemoryMiB)
	case o.CPUs < 1 || o.CPUs > maxCPUs:
		return o, fmt.Errorf("lab: %d CPUs: not within 1 and %d", o.CPUs, maxCPUs)
	case o.BootTimeout < 0:
		return o, fmt.Errorf("lab: boot timeout %v is negative", o.BootTimeout)
	}
	for _, w := range o.Writable {
		if err := checkWritable(w); err != nil {
			return o, err
		}
	}
	if o.StateDir != "" {
		return o, checkStateDir(o.StateDir)
	}
	return o, nil
}

func checkWritable(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) == "/" {
		return fmt.Errorf("lab: writable folder %q: want an absolute path below /", path)
	}
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("lab: writable folder: %w", err)
	}
	if !st.IsDir() {
		return fmt.Errorf("lab: writable folder %q: not a directory", path)
	}
	return nil
}

func checkStateDir(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("lab: state folder %q: want an absolute path", path)
	case strings.ContainsAny(path, " \t\n\","):
		return fmt.Errorf("lab: state folder %q: spaces, commas and quotes can not be passed to a kernel", path)
	case len(path) > maxStateDir:
		return fmt.Errorf("lab: state folder %q: longer than %d bytes", path, maxStateDir)
	}
	return nil
}

// runtimeDir is where this user's sockets belong.
func runtimeDir() string {
	if os.Geteuid() == 0 {
		return "/run/thaw"
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "thaw")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("thaw-%d", os.Geteuid()))
}

// DefaultStateDir is the state folder of the detached lab that the user has for
// this source tree: a lab runs the tree's own daemon.
func DefaultStateDir() string { return filepath.Join(runtimeDir(), checkout.Suffixed("lab")) }

// makeStateDir makes the state folder, a new one when path is empty. remove is
// what to call at the end of the lab.
func makeStateDir(path string) (dir string, remove func() error, err error) {
	if path != "" {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return "", nil, fmt.Errorf("lab: make state folder: %w", err)
		}
		return path, func() error { return nil }, nil
	}
	parent := runtimeDir()
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", nil, fmt.Errorf("lab: make state folder: %w", err)
	}
	dir, err = os.MkdirTemp(parent, "lab-")
	if err != nil {
		return "", nil, fmt.Errorf("lab: make state folder: %w", err)
	}
	if err := checkStateDir(dir); err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}
