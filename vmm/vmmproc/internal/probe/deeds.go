package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/unixfd"
	"thaw/vmm/vmmproto"
)

type result = vmmproto.Exited

// deeds are what the machine can do, by command line. Those that the jail should stop return "survived" if it does not.
var deeds = map[string]func(*machine) (result, error){
	"idle":     (*machine).idle,
	"poweroff": func(*machine) (result, error) { return result{Reason: vmmproto.Poweroff}, nil },
	"error":    func(*machine) (result, error) { return result{}, errors.New("vmm: guest memory: bad\x00thing") },
	"panic":    func(*machine) (result, error) { panic("probe: asked to panic") },
	"exit 7":   func(*machine) (result, error) { os.Exit(7); return result{}, nil },
	"flood": func(m *machine) (result, error) {
		for range 1024 {
			os.Stderr.WriteString(strings.Repeat("flood ", 1000))
		}
		return m.idle()
	},

	// What a VMM does all the time must work: many threads, timers, memory, the poller.
	"busy": func(m *machine) (result, error) {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil) // holds a thread
				b := make([]byte, 1<<20)
				b[i]++
			})
		}
		wg.Wait()
		time.Sleep(time.Millisecond)
		return result{Reason: vmmproto.Poweroff, Detail: fmt.Sprint(busyDevice(m))}, nil
	},
	"echo": func(m *machine) (result, error) {
		if err := m.echo(1025); err != nil {
			return result{}, err
		}
		if err := m.echo(99); err == nil {
			return result{}, errors.New("port 99 was connected")
		}
		return result{Reason: vmmproto.Reset}, nil
	},
	"flood of connects": func(m *machine) (result, error) {
		for id := range vmmproto.MaxOutstanding + 2 {
			raw(packet(&vmmproto.Connect{ID: uint64(id), Port: 1}))
		}
		return m.idle()
	},

	"storm of connects": func(m *machine) (result, error) {
		var done atomic.Int64
		var wg sync.WaitGroup
		end := time.Now().Add(500 * time.Millisecond)
		for range vmmproto.MaxOutstanding {
			wg.Go(func() {
				for time.Now().Before(end) {
					m.Connect(99) // refused
					done.Add(1)
				}
			})
		}
		wg.Wait()
		return result{Reason: vmmproto.Poweroff, Detail: fmt.Sprint(done.Load())}, nil
	},
	"connects without reading": func(m *machine) (result, error) {
		<-m.deaf
		for id := range 20_000 {
			raw(packet(&vmmproto.Connect{ID: uint64(id), Port: 1}))
			if id%8 == 0 {
				time.Sleep(time.Millisecond) // the daemon gets to answering
			}
		}
		return m.idle()
	},

	// Around the protocol.
	"garbage":         func(m *machine) (result, error) { raw("\x00\xff no message"); return m.idle() },
	"oversized":       func(m *machine) (result, error) { raw(strings.Repeat(" ", vmmproto.MaxMessage+1)); return m.idle() },
	"wrong direction": func(m *machine) (result, error) { raw(packet(&vmmproto.Stop{ID: 1})); return m.idle() },
	"unasked reply":   func(m *machine) (result, error) { raw(packet(&vmmproto.Done{ID: 77})); return m.idle() },
	"started twice":   func(m *machine) (result, error) { raw(packet(&vmmproto.Started{})); return m.idle() },
	"empty packet":    func(m *machine) (result, error) { unix.Sendmsg(3, nil, nil, nil, 0); return m.idle() },
	"close socket":    func(m *machine) (result, error) { unix.Close(3); return m.idle() },
	"descriptor": func(m *machine) (result, error) {
		err := unixfd.Send(os.NewFile(3, "control"), []byte(packet(&vmmproto.Done{ID: 1})), os.Stderr)
		if err != nil {
			return result{}, err
		}
		return m.idle()
	},

	// Against the jail.
	"open":         survive(func() error { _, err := unix.Open("/", unix.O_RDONLY, 0); return err }),
	"openat":       survive(func() error { _, err := unix.Openat(3, "x", unix.O_RDONLY, 0); return err }),
	"socket inet":  survive(func() error { _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); return err }),
	"socket unix":  survive(func() error { _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }),
	"socketpair":   survive(func() error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }),
	"execve":       survive(func() error { return unix.Exec("/proc/self/exe", []string{"x"}, nil) }),
	"ptrace":       survive(func() error { return unix.PtraceAttach(1) }),
	"mount":        survive(func() error { return unix.Mount("proc", "/", "proc", 0, "") }),
	"kill":         survive(func() error { return unix.Kill(-1, unix.SIGKILL) }),
	"tgkill other": survive(func() error { return unix.Tgkill(2, 2, unix.SIGKILL) }),
	"unshare":      survive(func() error { return unix.Unshare(unix.CLONE_NEWUSER) }),
	"setuid":       survive(func() error { return unix.Setuid(0) }),
	"bpf":          survive(func() error { _, _, e := unix.Syscall(unix.SYS_BPF, 0, 0, 0); return e }),
	"io_uring":     survive(func() error { _, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); return e }),
	"memfd":        survive(func() error { _, err := unix.MemfdCreate("x", 0); return err }),
	"prctl":        survive(func() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }),
	"fork":         survive(func() error { _, _, e := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); return e }),
	"truncate": survive(func() error {
		return unix.Ftruncate(4, 1<<40)
	}),
	"mmap exec": survive(func() error {
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	}),
	"ioctl":          survive(func() error { _, err := unix.IoctlGetInt(3, unix.TIOCINQ); return err }),
	"fallocate grow": survive(func() error { return unix.Fallocate(4, 0, 0, 1<<40) }),
	"fallocate past the end": survive(func() error {
		return unix.Fallocate(4, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_ZERO_RANGE, 1<<30, 1<<30)
	}),
	"fcntl owner": survive(func() error { _, err := unix.FcntlInt(3, unix.F_SETOWN, 1); return err }),
	"x32":         survive(func() error { _, _, e := unix.Syscall(unix.SYS_OPEN|0x40000000, 0, 0, 0); return e }),
}

// survive reports a deed that the jail should have ended.
func survive(deed func() error) func(*machine) (result, error) {
	return func(*machine) (result, error) {
		err := deed()
		return result{}, fmt.Errorf("survived (%v)", err)
	}
}

// busyDevice uses the passed files as devices do.
func busyDevice(m *machine) error {
	for name, f := range m.Files {
		if _, err := f.Stat(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	disk := m.Files["disk.vda.0"]
	fd, err := unixfd.Number(disk)
	if err != nil {
		return err
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"pwritev2", func() error { _, err := unix.Pwritev2(fd, [][]byte{make([]byte, 512)}, 0, unix.RWF_DSYNC); return err }},
		{"preadv2", func() error { _, err := unix.Preadv2(fd, [][]byte{make([]byte, 512)}, 0, 0); return err }},
		{"fdatasync", func() error { return unix.Fdatasync(fd) }},
		{"punch hole", func() error {
			return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)
		}},
		{"seek data", func() error {
			if _, err := unix.Seek(fd, 0, unix.SEEK_DATA); err != nil && err != unix.ENXIO {
				return err
			}
			return nil
		}},
		{"eventfd", func() error { _, err := unix.Eventfd(0, unix.EFD_CLOEXEC); return err }},
		{"getrandom", func() error { _, err := unix.Getrandom(make([]byte, 64), 0); return err }},
	}
	for _, s := range steps {
		if err := s.run(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	// The limit of the jail: no disk grows beyond the largest file that may be written, which is memory with 4 MiB.
	if _, err := unix.Pwritev2(fd, [][]byte{{1}}, 4<<20, 0); err != unix.EFBIG {
		return fmt.Errorf("write past the largest size: %v", err)
	}
	return nil
}
