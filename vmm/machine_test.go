package vmm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
	"thaw/vmm/boot"
)

// The guests here are a few hand-assembled instructions in 64-bit mode, which
// every kind of KVM can run, in an ELF file with one segment.

// Pieces of guest code.
var (
	asmReset = []byte{
		0xb0, 0xfe, // mov al, 0xfe
		0xe6, 0x64, // out 0x64, al
		0xf4, // hlt
	}
	asmSpin  = []byte{0xeb, 0xfe} // jmp .
	asmFault = []byte{0x0f, 0x0b} // ud2, without an IDT
	// The first register of the first virtio device, to the console.
	asmPrintMagic = join(
		[]byte{0xc7, 0x04, 0x25, 0x18, 0xa0, 0x00, 0x00, 0x03, 0x00, 0x03, 0x00}, // mov dword [0xa018], 0x30003: PDPT entry of the fourth GiB
		[]byte{0xc7, 0x04, 0x25, 0x00, 0x04, 0x03, 0x00, 0x83, 0x00, 0x00, 0xd0}, // mov dword [0x30400], 0xd0000083: 2 MiB page at 0xd0000000
		[]byte{0xb8, 0x00, 0x00, 0x00, 0xd0},                                     // mov eax, 0xd0000000
		[]byte{0x8b, 0x18},                                                       // mov ebx, [rax]
		bytes.Repeat([]byte{
			0x88, 0xd8, // mov al, bl
			0x66, 0xba, 0xf8, 0x03, // mov dx, 0x3f8
			0xee,             // out dx, al
			0xc1, 0xeb, 0x08, // shr ebx, 8
		}, 4),
	)
)

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// asmPrint writes s to the console.
func asmPrint(s string) []byte {
	code := []byte{0x66, 0xba, 0xf8, 0x03} // mov dx, 0x3f8
	for _, c := range []byte(s) {
		code = append(code, 0xb0, c, 0xee) // mov al, c; out dx, al
	}
	return code
}

// asmOut writes v to a port.
func asmOut(port uint16, v byte) []byte {
	return []byte{0x66, 0xba, byte(port), byte(port >> 8), 0xb0, v, 0xee}
}

// kernelFile wraps code in an ELF file whose entry is its start.
func kernelFile(t testing.TB, code []byte) *os.File {
	t.Helper()
	const header, entry = 64 + 56, 0x100_0000
	le := binary.LittleEndian
	b := make([]byte, header)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 2)
	le.PutUint16(b[18:], 62)
	le.PutUint64(b[24:], entry)
	le.PutUint64(b[32:], 64)
	le.PutUint16(b[54:], 56)
	le.PutUint16(b[56:], 1)
	le.PutUint32(b[64:], 1)
	le.PutUint64(b[64+8:], header)
	le.PutUint64(b[64+24:], entry)
	le.PutUint64(b[64+32:], uint64(len(code)))
	le.PutUint64(b[64+40:], uint64(len(code)))
	return tempFile(t, append(b, code...))
}

func tempFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func testConfig(t testing.TB, code []byte) Config {
	t.Helper()
	cfg := Config{VCPUs: 1, MemoryBytes: MinMemory, KVM: kvmtest.Device(t), Kernel: kernelFile(t, code)}
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Memory = os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { cfg.Memory.Close() })
	if err := cfg.Memory.Truncate(int64(cfg.MemoryBytes)); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func newMachine(t testing.TB, cfg Config) *Machine {
	t.Helper()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestHowMachinesEnd(t *testing.T) {
	for name, c := range map[string]struct {
		code    []byte
		want    Reason
		console string
	}{
		"reset":           {join(asmPrint("hello"), asmReset), Reset, "hello"},
		"power off":       {asmOut(sleepPort, 5<<2|1<<5), Poweroff, ""},
		"pvpanic":         {join(asmPrint("dying"), asmOut(panicPort, 1)), Panic, "dying"},
		"panic message":   {join(asmPrint("Kernel panic - not syncing: x"), asmFault), Panic, "Kernel panic - not syncing: x"},
		"triple fault":    {asmFault, TripleFault, ""},
		"other ports":     {join(asmOut(0x80, 1), asmOut(0xcf8, 2), asmReset), Reset, ""},
		"long port loops": {join(asmOut(sleepPort, 0), asmOut(keyboardPort, 0x20), asmReset), Reset, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, testConfig(t, c.code))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			exit := m.Run(ctx)
			if exit.Reason != c.want || string(exit.Console) != c.console {
				t.Errorf("exit %q (%s), console %q; want %q, %q", exit.Reason, exit.Detail, exit.Console, c.want, c.console)
			}
		})
	}
}

func TestRegisterReadsDoNotExit(t *testing.T) {
	for name, plain := range map[string]bool{"page": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, join(asmPrintMagic, asmReset))
			cfg.Disks = []Disk{{ID: "vda", Layers: []*os.File{tempFile(t, make([]byte, 1<<20))}}}
			cfg.PlainMMIO = plain
			m := newMachine(t, cfg)
			exit := m.Run(t.Context())
			if exit.Reason != Reset || string(exit.Console) != "virt" {
				t.Errorf("exit %q (%s), console %q", exit.Reason, exit.Detail, exit.Console)
			}
			want := uint64(0)
			if m.plainMMIO() {
				want = 1
			}
			if n := m.Stats().MMIORead; n != want {
				t.Errorf("%d exits for register reads, want %d", n, want)
			}
			counters := m.Counters()
			if counters["exits.mmio_read"] != want || counters["exits.port_io"] == 0 {
				t.Errorf("counters %v", counters)
			}
			if _, ok := counters["block0.read_bytes"]; !ok {
				t.Errorf("no counters of the disk: %v", counters)
			}
		})
	}
}

func TestPauseAndStopASpinningGuest(t *testing.T) {
	m := newMachine(t, testConfig(t, join(asmPrint("go"), asmSpin)))
	done := make(chan Exit)
	go func() { done <- m.Run(context.Background()) }()
	for string(m.Console()) != "go" {
		time.Sleep(time.Millisecond)
	}
	for range 20 {
		m.Pause()
		m.Resume()
	}
	m.Pause()
	m.Stop()
	select {
	case exit := <-done:
		if exit.Reason != Stopped {
			t.Errorf("exit %+v", exit)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("machine did not stop")
	}
	m.Pause() // of a machine that has ended: nothing
	m.Resume()
}

func TestContextEndsRun(t *testing.T) {
	m := newMachine(t, testConfig(t, asmSpin))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if exit := m.Run(ctx); exit.Reason != Stopped {
		t.Errorf("exit %+v", exit)
	}
}

func TestRefusedConfigurations(t *testing.T) {
	for name, c := range map[string]struct {
		change func(cfg *Config)
		want   error
	}{
		"no vcpus":          {func(c *Config) { c.VCPUs = 0 }, ErrVCPUs},
		"too many vcpus":    {func(c *Config) { c.VCPUs = MaxVCPUs + 1 }, ErrVCPUs},
		"too little memory": {func(c *Config) { c.MemoryBytes = MinMemory - 4096 }, ErrMemorySize},
		"too much memory":   {func(c *Config) { c.MemoryBytes = MaxMemory + 4096 }, ErrMemorySize},
		"odd memory":        {func(c *Config) { c.MemoryBytes = MinMemory + 1 }, ErrMemorySize},
		"truncated kernel":  {func(c *Config) { c.Kernel.Truncate(100) }, boot.ErrBadKernel},
		"kernel of another architecture": {func(c *Config) {
			c.Kernel.WriteAt([]byte{183, 0}, 18)
		}, boot.ErrBadKernel},
		"empty initramfs": {func(c *Config) { c.Initrd, _ = os.Open(os.DevNull) }, boot.ErrBadInitrd},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, asmReset)
			c.change(&cfg)
			if m, err := New(cfg); !errors.Is(err, c.want) {
				t.Errorf("err %v, want %v", err, c.want)
				if m != nil {
					m.Close()
				}
			}
		})
	}
}
