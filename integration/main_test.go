package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/u-root/u-root/pkg/cpio"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/guestinit/agentclient"
	"thaw/internal/hostinfo"
	"thaw/internal/kvmtest"
	"thaw/kernel"
	"thaw/rootfs"
	"thaw/vmm"
	"thaw/vmm/vmmproc"
)

// bin is where the programs are.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if bin = os.Getenv("THAW_BIN"); bin == "" {
		dir, err := os.MkdirTemp("", "thaw-integration-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		for _, args := range [][]string{
			{"thaw/cmd/...", "thaw/integration/runner"},
			{"-ldflags=-D 0xa00000", "thaw/cmd/thaw-init"}, // as the Makefile has it
		} {
			cmd := exec.Command("go", append([]string{"build", "-o", dir}, args...)...)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "build programs: %v\n%s", err, out)
				return 1
			}
		}
		bin = dir
	}
	before := processes()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "leaked goroutines:", err)
		code = 1
	}
	if after := processes(); after > before {
		fmt.Fprintf(os.Stderr, "leaked processes: %d children, %d before\n", after, before)
		code = 1
	}
	return code
}

// processes counts this process's children.
func processes() int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		return 0
	}
	n := 0
	for _, c := range b {
		if c == ' ' {
			n++
		}
	}
	return n
}

// shape is what a machine looks like.
type shape struct {
	vcpus int
	mib   int
}

func (s shape) String() string { return fmt.Sprintf("%dcpu-%dMiB", s.vcpus, s.mib) }

// shapes are those on which kernels have shown different faults: one and two
// processors, little and much memory, and memory above 4 GiB. In the lab,
// where a minute takes ten, two of them have to do.
func shapes() []shape {
	if hostinfo.Detect().Kind == hostinfo.Lab {
		return []shape{{1, 512}, {2, 3072}}
	}
	return []shape{{1, 512}, {2, 512}, {1, 3072}, {2, 3072}, {4, 6144}}
}

// kernels returns the kernels that this kind of host can boot. The cache must
// hold them; nothing is built here.
func kernels(t *testing.T) []*kernel.Kernel {
	t.Helper()
	kvmtest.Device(t).Close()
	tuned, err := kernel.Tuned(t.Context(), os.Stderr)
	if err != nil {
		kvmtest.Unavailable(t, "no tuned kernel: %v", err)
	}
	list := []*kernel.Kernel{tuned}
	host := hostinfo.Detect()
	if host.Kind == hostinfo.PVM {
		t.Logf("stock kernel is left out: kvm on this host (%s) runs only kernels with the native guest patch", host.Kind)
		return list
	}
	stock, err := kernel.Stock(t.Context(), os.Stderr)
	if err != nil {
		kvmtest.Unavailable(t, "no stock kernel: %v", err)
	}
	return append(list, stock)
}

// spec returns a machine of the given shape without disks.
func spec(t *testing.T, k *kernel.Kernel, s shape, initrd string) vmmproc.Spec {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { memory.Close() })
	size := int64(s.mib) << 20
	if err := memory.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return vmmproc.Spec{
		Binary: filepath.Join(bin, "thaw-vmm"), KVM: kvmtest.Device(t), Memory: memory,
		Kernel: open(t, k.Path), Initrd: open(t, initrd),
		VCPUs: s.vcpus, MemoryBytes: uint64(size), Cmdline: vmm.Cmdline(hostinfo.Detect().Kind == hostinfo.PVM),
		ConsoleLog: 256 << 10, UID: 210000, GID: 210000, Dev: true,
		// The lab and a host under load are slow.
		StartTimeout: time.Minute, PingTimeout: time.Minute,
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// start starts a machine and ends it with the test. Of a test that failed, it
// tells how the machine ended and what it said last.
func start(t *testing.T, s vmmproc.Spec) *vmmproc.Process {
	t.Helper()
	p, err := vmmproc.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if exit, err := p.Wait(context.Background()); err == nil && t.Failed() {
			t.Logf("machine ended: %s; stderr %q; console:\n%s", exit, exit.Stderr, exit.Console)
		}
	})
	return p
}

// wait returns how a machine ended.
func wait(t *testing.T, p *vmmproc.Process, limit time.Duration) vmmproc.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	exit, err := p.Wait(ctx)
	if err != nil {
		console, _ := p.Console(t.Context())
		t.Fatalf("machine did not end: %v\n%s", err, console)
	}
	return exit
}

// archive writes an initramfs of the files, by their path in the guest, and of
// the kernel's modules, which the runner loads.
func archive(t *testing.T, k *kernel.Kernel, files map[string]string) string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "initramfs"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w := cpio.Newc.Writer(out)
	records := []cpio.Record{
		cpio.Directory("dev", 0o755), cpio.CharDev("dev/console", 0o600, 5, 1), cpio.Directory("tests", 0o755), cpio.Directory("modules", 0o755),
	}
	files = maps.Clone(files)
	for i, path := range k.ModulePaths() {
		files[fmt.Sprintf("modules/%02d-%s", i, filepath.Base(path))] = path
	}
	for name, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, cpio.StaticFile(name, string(b), 0o755))
	}
	if err := cpio.WriteRecords(w, records); err != nil {
		t.Fatal(err)
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}

// guest is a machine with an image, whose agent has said that it is ready.
type guest struct {
	*vmmproc.Process
	client *agentclient.Client
}

// readyPort is the host's port that the agent dials when it serves.
const readyPort = 1025

// agentPort is the guest's port that it serves.
const agentPort = 1024

// bootGuest boots an image and waits for the agent.
func bootGuest(t *testing.T, k *kernel.Kernel, s shape, image string, change func(*vmmproc.Spec)) *guest {
	t.Helper()
	img, err := rootfs.Build(t.Context(), image, os.Stderr)
	if err != nil {
		kvmtest.Unavailable(t, "no image %s: %v", image, err)
	}
	initrd, err := rootfs.Initramfs(t.Context(), filepath.Join(bin, "thaw-init"), k.ModulePaths())
	if err != nil {
		t.Fatal(err)
	}
	base, err := rootfs.Scratch(t.Context(), diskSize)
	if err != nil {
		t.Fatal(err)
	}
	top, err := os.OpenFile(filepath.Join(t.TempDir(), "top"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { top.Close() })
	if err := top.Truncate(diskSize); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "vsock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	ready := make(chan *os.File, 1)
	m := spec(t, k, s, initrd)
	m.Disks = []vmmproc.Disk{
		{ID: "vda", Layers: []*os.File{open(t, img.Path)}, ReadOnly: true},
		{ID: "vdb", Layers: []*os.File{open(t, base), top}},
	}
	m.VsockListener, m.CID, m.Balloon = file, 3, true
	m.Connect = func(port uint32) (*os.File, error) {
		if port != readyPort {
			return nil, fmt.Errorf("port %d is not registered", port)
		}
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		ready <- os.NewFile(uintptr(fds[1]), "ready")
		return os.NewFile(uintptr(fds[0]), "ready"), nil
	}
	if change != nil {
		change(&m)
	}
	p := start(t, m)
	select {
	case f := <-ready:
		f.Close()
	case <-time.After(2 * time.Minute):
		console, _ := p.Console(t.Context())
		t.Fatalf("agent did not become ready\n%s", console)
	}
	client := agentclient.New(func(ctx context.Context) (net.Conn, error) { return dial(ctx, path, agentPort) })
	t.Cleanup(func() { client.Close() })
	return &guest{p, client}
}

// dial connects to a guest's port.
func dial(ctx context.Context, path string, port uint32) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	fmt.Fprintf(c, "CONNECT %d\n", port)
	// Byte by byte: what follows the line belongs to the stream.
	for b := make([]byte, 1); b[0] != '\n'; {
		if err := binary.Read(c, binary.LittleEndian, b); err != nil {
			c.Close()
			return nil, fmt.Errorf("connect to guest port %d: %w", port, err)
		}
	}
	return c, nil
}
