package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"thaw/vmm/vmmproc"
)

// pollConsole is how often a machine of ours is asked for its console, which
// has no other way out. What is measured is late by half of it on average; asked
// every millisecond, a machine on a host with two cores starts 10 ms later.
const pollConsole = 4 * time.Millisecond

// user is the host user id of bench's machines: below thawd's slots.
const user = 1_890_000

// Thaw makes Thaw's machines, jailed as thawd does.
type Thaw struct {
	VMM string // path of thaw-vmm
	PVM bool   // the host's KVM works by page tables
}

// Name implements Side.
func (t *Thaw) Name() string { return "thaw" }

// Start makes a machine. change may be nil; it is the last word on the
// specification.
func (t *Thaw) Start(ctx context.Context, b Boot, change func(*vmmproc.Spec)) (*vmmproc.Process, error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	open := func(path string, flags int) (*os.File, error) {
		f, err := os.OpenFile(path, flags, 0)
		if err == nil {
			files = append(files, f)
		}
		return f, err
	}
	size := int64(b.MemoryMiB) << 20
	memory, err := guestMemory(size)
	if err != nil {
		return nil, err
	}
	files = append(files, memory)
	s := vmmproc.Spec{
		Binary: t.VMM, Memory: memory, VCPUs: b.VCPUs, MemoryBytes: uint64(size), Cmdline: cmdline(b, t.PVM),
		Tap: b.Tap, MAC: mac, ConsoleLog: 64 << 10, UID: user, GID: user, Dev: true,
	}
	for _, in := range []struct {
		to    **os.File
		path  string
		flags int
	}{{&s.KVM, "/dev/kvm", os.O_RDWR}, {&s.Kernel, b.Kernel, os.O_RDONLY}, {&s.Initrd, b.Initrd, os.O_RDONLY}} {
		if *in.to, err = open(in.path, in.flags); err != nil {
			return nil, fmt.Errorf("machine: %w", err)
		}
	}
	for i, d := range b.Disks {
		flags := os.O_RDWR
		if d.ReadOnly {
			flags = os.O_RDONLY
		}
		f, err := open(d.Path, flags)
		if err != nil {
			return nil, fmt.Errorf("machine: %w", err)
		}
		s.Disks = append(s.Disks, vmmproc.Disk{ID: "vd" + string(rune('a'+i)), Layers: []*os.File{f}, ReadOnly: d.ReadOnly})
	}
	if change != nil {
		change(&s)
	}
	return vmmproc.Start(ctx, s)
}

// guestMemory makes a memfd.
func guestMemory(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("thaw-guest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("machine: make guest memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, fmt.Errorf("machine: size guest memory: %w", err)
	}
	return f, nil
}

// UntilLine implements Side.
func (t *Thaw) UntilLine(ctx context.Context, b Boot, line string) (time.Duration, error) {
	begin := time.Now()
	p, err := t.Start(ctx, b, nil)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	for {
		console, err := p.Console(ctx)
		if err != nil {
			exit, werr := p.Wait(ctx)
			if werr != nil {
				return 0, LastWords(ctx, p, fmt.Errorf("machine: thaw: wait for %q: %w", line, werr))
			}
			return 0, fmt.Errorf("machine: thaw: %w: %s %s, %s", ErrNoLine, exit.Reason, exit.Detail, lastLines(exit.Console))
		}
		if bytes.Contains(console, []byte(line)) {
			return time.Since(begin), p.Close()
		}
		time.Sleep(pollConsole)
	}
}

// UntilEnd implements Side.
func (t *Thaw) UntilEnd(ctx context.Context, b Boot) ([]byte, error) {
	p, err := t.Start(ctx, b, nil)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	exit, err := p.Wait(ctx)
	if err != nil {
		return nil, LastWords(ctx, p, fmt.Errorf("machine: thaw: wait for the end: %w", err))
	}
	switch exit.Reason {
	case vmmproc.Poweroff, vmmproc.Reset, vmmproc.TripleFault:
		return exit.Console, p.Close()
	}
	return nil, fmt.Errorf("machine: thaw: %w: %s %s, %s", ErrNoLine, exit.Reason, exit.Detail, lastLines(exit.Console))
}
