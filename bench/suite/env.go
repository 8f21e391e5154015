package suite

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"thaw/bench/machine"
	"thaw/bench/samples"
	"thaw/internal/hostinfo"
	"thaw/kernel"
	"thaw/rootfs"
)

// Config says what to measure and with what.
type Config struct {
	Bin      string // folder of thawd, thaw-vmm, thaw-init and bench-guest
	Quick    bool   // within two minutes
	RawDir   string // where samples are stored, or ""
	Kernel   string // path of another kernel than the tuned one, or ""
	Only     []string
	NoACPI   bool // compare with a QEMU without ACPI
	Progress io.Writer
}

// env is what measurements share.
type env struct {
	cfg    Config
	host   string
	dir    string // temporary, removed at the end
	kernel string
	thaw   *machine.Thaw
	raw    *samples.File // or nil
	pvm    bool
	amd    bool
}

// newEnv looks at the host and makes the temporary folder.
func newEnv(ctx context.Context, cfg Config) (*env, error) {
	info := hostinfo.Detect()
	if info.Kind == hostinfo.None {
		return nil, fmt.Errorf("suite: no machine can run on this host: `thaw doctor` says what is missing")
	}
	e := &env{cfg: cfg, pvm: info.Kind == hostinfo.PVM, amd: strings.Contains(info.CPUModel, "AMD")}
	e.host = fmt.Sprintf("%s, %s, Linux %s", info.Kind, info.CPUModel, info.Kernel)
	e.thaw = &machine.Thaw{VMM: filepath.Join(cfg.Bin, "thaw-vmm"), PVM: e.pvm}
	if e.kernel = cfg.Kernel; e.kernel == "" {
		k, err := kernel.Tuned(ctx, cfg.Progress)
		if err != nil {
			return nil, err
		}
		e.kernel = k.Path
	}
	var err error
	if e.dir, err = os.MkdirTemp("", "thaw-bench-"); err != nil {
		return nil, fmt.Errorf("suite: make temporary folder: %w", err)
	}
	if cfg.RawDir != "" {
		e.raw, err = samples.Create(cfg.RawDir, "start")
		if err == nil {
			err = e.raw.Add("host", e.host)
		}
		if err != nil {
			e.close()
			return nil, err
		}
	}
	return e, nil
}

func (e *env) close() {
	_ = e.raw.Close() // each sample was written
	os.RemoveAll(e.dir)
}

// sample stores one raw sample.
func (e *env) sample(what string, value any) error { return e.raw.Add(what, value) }

func (e *env) say(format string, args ...any) {
	fmt.Fprintf(e.cfg.Progress, "bench: "+format+"\n", args...)
}

// qemu finds the other side.
func (e *env) qemu(ctx context.Context) (*machine.QEMU, error) {
	q, err := machine.FindQEMU(ctx, e.pvm, e.amd)
	if err != nil {
		return nil, err
	}
	q.NoACPI = e.cfg.NoACPI
	return q, nil
}

// pick returns the value for a quick run or for a full one.
func pick[T any](quick bool, short, full T) T {
	if quick {
		return short
	}
	return full
}

// initramfs makes an initramfs with the program as /init.
func (e *env) initramfs(ctx context.Context, program string) (string, error) {
	return rootfs.Initramfs(ctx, program, nil)
}

// image returns a root image, made now if need be, and its pages in the cache.
func (e *env) image(ctx context.Context, name string) (string, error) {
	img, err := rootfs.Build(ctx, name, e.cfg.Progress)
	if err != nil {
		return "", err
	}
	return img.Path, warm(img.Path)
}

// warm reads a file, so that its pages are in the host's cache.
func warm(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("suite: warm page cache: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(io.Discard, bufio.NewReaderSize(f, 1<<20)); err != nil {
		return fmt.Errorf("suite: warm page cache: %w", err)
	}
	return nil
}

// dataDisk writes a file of random bytes: no holes and nothing to compress. Its
// pages are in the cache then.
func (e *env) dataDisk(size int64) (string, error) {
	path := filepath.Join(e.dir, "data")
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("suite: make data disk: %w", err)
	}
	defer f.Close()
	chunk := make([]byte, 8<<20)
	if _, err := rand.Read(chunk); err != nil {
		return "", fmt.Errorf("suite: make data disk: %w", err)
	}
	for left := size; left > 0; left -= int64(len(chunk)) {
		if _, err := f.Write(chunk); err != nil {
			return "", fmt.Errorf("suite: fill data disk: %w", err)
		}
	}
	// Written back now, so that it does not happen during the measurement.
	if err := f.Sync(); err != nil {
		return "", fmt.Errorf("suite: fill data disk: %w", err)
	}
	return path, nil
}
