package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// defaultEnv is added to what a request names, where it names no value of its
// own.
var defaultEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/workspace",
	"LANG=C.UTF-8",
	"GLIBC_TUNABLES=" + mallocTunables,
}

// mallocTunables make memory-hungry jobs fast where a page fault is dear: glibc
// asks for huge pages, and takes blocks of up to 32 MiB from its heap at once, as
// it would by itself after the first such block was freed. A block with a mapping
// of its own has no huge pages at its two ends, which are some 500 faults.
const mallocTunables = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864"

// Environment returns a job's: what is named, and the defaults.
func Environment(named []string) []string {
	env := append(make([]string, 0, len(named)+len(defaultEnv)), named...)
	for _, d := range defaultEnv {
		name, _, _ := strings.Cut(d, "=")
		if _, ok := getenv(named, name); !ok {
			env = append(env, d)
		}
	}
	return env
}

func getenv(env []string, name string) (string, bool) {
	for _, e := range env {
		if n, v, _ := strings.Cut(e, "="); n == name {
			return v, true
		}
	}
	return "", false
}

// LookPath finds a program as execvp does: a name without a slash in the
// job's own PATH.
func LookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path, _ := getenv(env, "PATH")
	code := agentproto.CodeNotFound
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // not what the caller meant: the agent's directory is /
		}
		file := filepath.Join(dir, name)
		info, err := os.Stat(file)
		if err != nil || info.IsDir() {
			continue
		}
		if info.Mode()&0o111 == 0 {
			code = agentproto.CodePermission
			continue
		}
		return file, nil
	}
	return "", &agentproto.Error{Code: code, Message: fmt.Sprintf("no program %q in PATH", name), Errno: int32(unix.ENOENT)}
}

// ExplainStart makes an error for the host of what Start returned:
// chdir and execve fail with the same numbers.
func ExplainStart(err error, cwd, path string) error {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return err
	}
	e := agentproto.FromErr(err)
	if info, statErr := os.Stat(cwd); statErr != nil || !info.IsDir() {
		e.Code, e.Message = agentproto.CodeNotFound, fmt.Sprintf("working directory %q: %v", cwd, errno)
		return e
	}
	e.Message = fmt.Sprintf("start %q: %v", path, errno)
	switch errno {
	case unix.ENOENT:
		if _, statErr := os.Stat(path); !errors.Is(statErr, fs.ErrNotExist) {
			e.Message = fmt.Sprintf("start %q: its interpreter does not exist", path)
		}
	case unix.EINVAL:
		e.Code = agentproto.CodeNotExecable
	}
	return e
}

// Defaults of the rlimits that a request does not name.
const (
	defaultOpenFiles = 65536
	defaultProcesses = 4096
	defaultStack     = 8 << 20
)

// DefaultRlimits are the limits of a job that names none. PID 1 takes them for
// itself at boot, so that its children have them from the start.
func DefaultRlimits() []Rlimit { return Rlimits(agentproto.Limits{}) }

// Rlimits turns limits into resource limits. Every one is set, so that
// nothing of PID 1's own leaks into a job.
func Rlimits(l agentproto.Limits) []Rlimit {
	const inf = math.MaxUint64 // RLIM_INFINITY
	pick := func(n int64, def uint64) uint64 {
		if n > 0 {
			return uint64(n)
		}
		return def
	}
	same := func(resource int, v uint64) Rlimit { return Rlimit{Resource: resource, Soft: v, Hard: v} }
	cpu := same(unix.RLIMIT_CPU, inf)
	if l.CPUSeconds > 0 {
		// SIGXCPU at the limit, SIGKILL a second later.
		cpu.Soft, cpu.Hard = uint64(l.CPUSeconds), uint64(l.CPUSeconds)+1
	}
	stack := Rlimit{Resource: unix.RLIMIT_STACK, Soft: defaultStack, Hard: inf}
	if l.StackBytes > 0 {
		stack = same(unix.RLIMIT_STACK, uint64(l.StackBytes))
	}
	return []Rlimit{
		same(unix.RLIMIT_CORE, 0),
		same(unix.RLIMIT_NOFILE, pick(l.OpenFiles, defaultOpenFiles)),
		cpu,
		stack,
		same(unix.RLIMIT_FSIZE, pick(l.FileSizeBytes, inf)),
		same(unix.RLIMIT_NPROC, pick(l.Processes, defaultProcesses)),
		same(unix.RLIMIT_AS, pick(l.AddressSpaceBytes, inf)),
	}
}
