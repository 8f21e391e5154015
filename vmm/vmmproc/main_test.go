package vmmproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
)

// probePath and thawVMMPath are built by TestMain.
var probePath, thawVMMPath string

// slotUID is a host user id that nothing uses.
const slotUID = 231007

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		if kvmtest.Required() {
			fmt.Println("vmmproc: tests need root")
			return 1
		}
		fmt.Println("vmmproc: skipped: tests need root, to map user ids")
		return 0
	}
	if os.Getenv(daemonEnv) != "" {
		return m.Run()
	}
	// Not reachable by the slot's user, on purpose: like a checkout in a home folder.
	dir, err := os.MkdirTemp("", "vmmproc-test-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	for path, pkg := range map[*string]string{&probePath: "./internal/probe", &thawVMMPath: "thaw/cmd/thaw-vmm"} {
		*path = filepath.Join(dir, filepath.Base(pkg))
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", *path, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Printf("build %s: %v\n%s", pkg, err, out)
			return 1
		}
	}

	before := openDescriptors()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Println(err)
		code = max(code, 1)
	}
	if after := openDescriptors(); len(after) > len(before)+1 { // one for the poller, made by the first test
		fmt.Printf("descriptors leaked: %d before, %d after:\n%s\n", len(before), len(after), strings.Join(after, "\n"))
		code = max(code, 1)
	}
	if children := childProcesses(); len(children) > 0 {
		fmt.Printf("processes leaked: %v\n", children)
		code = max(code, 1)
	}
	return code
}

func openDescriptors() []string {
	var list []string
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(target, "eventpoll") && !strings.Contains(target, "eventfd") {
			list = append(list, e.Name()+" "+target)
		}
	}
	sort.Strings(list)
	return list
}

func childProcesses() []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	return strings.Fields(string(b))
}

// testSpec has files that the probe does not use as what they are called, except for its disk.
func testSpec(t testing.TB, deed string) Spec {
	t.Helper()
	memory, err := memfd("memory", 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := memfd("disk", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close(); disk.Close(); null.Close() })
	return Spec{
		Binary: probePath, KVM: null, Memory: memory, Kernel: null, VCPUs: 1, MemoryBytes: 4 << 20, Cmdline: deed,
		Disks: []Disk{{ID: "vda", Layers: []*os.File{disk}}}, ConsoleLog: 4096,
		UID: slotUID, GID: slotUID, Dev: true,
	}
}

func memfd(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	return f, f.Truncate(size)
}

// start starts a probe and closes it at the test's end.
func start(t testing.TB, spec Spec) *Process {
	t.Helper()
	p, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// end waits for the end.
func end(t testing.TB, p *Process) Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	e, err := p.Wait(ctx)
	if err != nil {
		t.Fatalf("no end: %v (process state %s, stderr %q)", err, processState(p.PID()), p.stderr.text())
	}
	return e
}

// failStart expects a StartError.
func failStart(t *testing.T, spec Spec) *StartError {
	t.Helper()
	p, err := Start(context.Background(), spec)
	var failed *StartError
	if !errors.As(err, &failed) {
		if p != nil {
			p.Close()
		}
		t.Fatalf("got %v, want a *StartError", err)
	}
	return failed
}
