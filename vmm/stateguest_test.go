package vmm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/u-root/u-root/pkg/cpio"

	"thaw/internal/hostinfo"
	"thaw/internal/kvmtest"
	"thaw/kernel"
	"thaw/vmm/serial"
)

// tickerInitrd builds an initramfs whose init is testdata/ticker.
func tickerInitrd(t *testing.T) *os.File {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "init")
	build := exec.Command("go", "build", "-o", program, "./testdata/ticker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build ticker: %v\n%s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "initramfs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w := cpio.Newc.Writer(f)
	records := []cpio.Record{
		cpio.Directory("dev", 0o755), cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.Directory("sys", 0o755), cpio.StaticFile("init", string(b), 0o755),
	}
	if err := cpio.WriteRecords(w, records); err != nil {
		t.Fatal(err)
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	return f
}

func tickerConfig(t *testing.T, vcpus int) Config {
	t.Helper()
	cfg := testConfig(t, asmReset)
	tuned, err := kernel.Tuned(t.Context(), os.Stderr)
	if err != nil {
		kvmtest.Unavailable(t, "no tuned kernel: %v", err)
	}
	k, err := os.Open(tuned.Path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	cfg.Kernel, cfg.Initrd, cfg.VCPUs = k, tickerInitrd(t), vcpus
	cfg.Cmdline = Cmdline(hostinfo.Detect().Kind == hostinfo.PVM)
	return cfg
}

// awaitTick waits until the console has tick n and returns its guest time, in
// milliseconds.
func awaitTick(t *testing.T, m *Machine, n int) int {
	t.Helper()
	prefix := fmt.Appendf(nil, "tick %d ", n)
	for range 3000 {
		if _, after, ok := bytes.Cut(m.Console(), prefix); ok {
			if line, _, ok := bytes.Cut(after, []byte("\n")); ok {
				var cpu, ms int
				if _, err := fmt.Sscanf(string(line), "cpu %d ms %d", &cpu, &ms); err != nil {
					t.Fatalf("line %q: %v", line, err)
				}
				return ms
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no tick %d; console:\n%s", n, m.Console())
	return 0
}

// TestGuestGoesOn saves the processors of a booted guest and goes on with them
// in a second machine, over a copy of the memory.
func TestGuestGoesOn(t *testing.T) {
	for _, vcpus := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d vcpus", vcpus), func(t *testing.T) {
			cfg := tickerConfig(t, vcpus)
			first := newMachine(t, cfg)
			stop := run(t, first)
			before := awaitTick(t, first, 2)
			t.Logf("%s", bytes.TrimSpace(first.Console()))
			first.Pause()
			state := saveAll(t, first)

			second := newMachine(t, emptyMemory(t, cfg))
			copyMemory(second, first)
			stop()
			// Long enough to tell a guest whose clock stood still from one whose
			// clock went on, and longer than the timers that are armed.
			time.Sleep(3 * time.Second)
			state.set(t, second)
			second.platform.uart = serial.Restore(second.console, second.events[0].Signal, first.platform.uart.State())
			began := time.Now()
			run(t, second)
			after := awaitTick(t, second, 5)
			took := time.Since(began)
			if guest := after - before; guest < 2800 || guest > 4500 {
				t.Errorf("from tick 2 to tick 5 the guest counted %d ms, want 3000: its clock did not go on from the snapshot", guest)
			}
			if took < 1500*time.Millisecond || took > 4500*time.Millisecond {
				t.Errorf("ticks 3 to 5 took %v, want 2 to 3 s: its timers did not go on from the snapshot", took)
			}
		})
	}
}
