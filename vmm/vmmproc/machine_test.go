package vmmproc

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thaw/internal/kvmtest"
)

// tinyKernel is a 64-bit ELF kernel that prints "tiny" on the serial port and then resets the machine through
// the keyboard controller, or spins.
func tinyKernel(t testing.TB, spin bool) *os.File {
	t.Helper()
	code := []byte{0x66, 0xba, 0xf8, 0x03} // mov dx, 0x3f8
	for _, c := range []byte("tiny\n") {
		code = append(code, 0xb0, c, 0xee) // mov al, c; out dx, al
	}
	if !spin {
		code = append(code, 0xb0, 0xfe, 0xe6, 0x64) // mov al, 0xfe; out 0x64, al
	}
	code = append(code, 0xeb, 0xfe) // jmp $

	const address, offset = 1 << 20, 0x1000
	le := binary.LittleEndian
	image := make([]byte, offset, offset+len(code))
	copy(image, "\x7fELF\x02\x01\x01")
	le.PutUint16(image[16:], 2)       // ET_EXEC
	le.PutUint16(image[18:], 62)      // EM_X86_64
	le.PutUint32(image[20:], 1)       // version
	le.PutUint64(image[24:], address) // entry
	le.PutUint64(image[32:], 64)      // program headers
	le.PutUint16(image[52:], 64)
	le.PutUint16(image[54:], 56)
	le.PutUint16(image[56:], 1)
	header := image[64:]
	le.PutUint32(header[0:], 1) // PT_LOAD
	le.PutUint32(header[4:], 5)
	le.PutUint64(header[8:], offset)
	le.PutUint64(header[16:], address)
	le.PutUint64(header[24:], address)
	le.PutUint64(header[32:], uint64(len(code)))
	le.PutUint64(header[40:], uint64(len(code)))
	image = append(image, code...)

	path := filepath.Join(t.TempDir(), "kernel")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// machineSpec is a real machine with every device that needs a descriptor, except for a tap.
func machineSpec(t testing.TB, spin bool) Spec {
	t.Helper()
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		kvmtest.Unavailable(t, "no KVM: %v", err)
	}
	const memory = 128 << 20
	ram, err := memfd("memory", memory)
	if err != nil {
		t.Fatal(err)
	}
	disk, err := memfd("disk", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "vsock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kvm.Close(); ram.Close(); disk.Close(); listener.Close(); socket.Close() })
	return Spec{
		Binary: thawVMMPath, KVM: kvm, Memory: ram, Kernel: tinyKernel(t, spin), VCPUs: 1, MemoryBytes: memory,
		Cmdline: "console=ttyS0", Disks: []Disk{{ID: "vda", Layers: []*os.File{disk}, ReadOnly: true}},
		VsockListener: socket, CID: 3, ConsoleLog: 4096, UID: slotUID, GID: slotUID, Dev: true,
	}
}

func TestRealMachineResets(t *testing.T) {
	e := end(t, start(t, machineSpec(t, false)))
	if e.Reason != Reset || string(e.Console) != "tiny\n" {
		t.Errorf("got %+v, console %q", e, e.Console)
	}
}

func TestRealMachineRequests(t *testing.T) {
	ctx := context.Background()
	p := start(t, machineSpec(t, true))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		console, err := p.Console(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(console, []byte("tiny\n")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("console is %q", console)
		}
	}
	for range 2 {
		if err := p.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.Resume(ctx); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := p.Stats(ctx)
	if err != nil || stats["vmm.heap_bytes"] == 0 {
		t.Errorf("stats %v, %v", stats, err)
	}
	t.Logf("phases %v", p.Phases())
	t.Logf("memory:\n%s", memoryLines(t, p.PID()))
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if e := end(t, p); e.Reason != Stopped || string(e.Console) != "tiny\n" {
		t.Errorf("got %+v", e)
	}
}

func TestRealMachineRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Spec)
		detail string
	}{
		"kernel that is none": {func(s *Spec) { s.Kernel = s.Memory }, "kernel image cannot be booted"},
		"too many vcpus":      {func(s *Spec) { s.VCPUs = 64 }, "vcpu count is out of range"},
		"not kvm":             {func(s *Spec) { s.KVM = s.Kernel }, "kvm"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := machineSpec(t, false)
			tc.change(&spec)
			failed := failStart(t, spec)
			if failed.Stage != "machine" || failed.Exit.Reason != StartFailed || !strings.Contains(failed.Exit.Detail, tc.detail) {
				t.Errorf("got %v", failed)
			}
		})
	}
}

func memoryLines(t testing.TB, pid int) string {
	var out []string
	status := readStatus(t, fmt.Sprintf("/proc/%d/status", pid))
	for _, key := range []string{"VmRSS", "RssAnon", "RssFile", "RssShmem", "Threads"} {
		out = append(out, key+" "+status[key])
	}
	return strings.Join(out, "\n")
}

// BenchmarkStart is from Start to the process's first message, with a machine that takes no time.
func BenchmarkStart(b *testing.B) { benchmarkStart(b, testSpec(b, "idle")) }

// BenchmarkStartMachine is the same with a real machine of 128 MiB.
func BenchmarkStartMachine(b *testing.B) { benchmarkStart(b, machineSpec(b, true)) }

func benchmarkStart(b *testing.B, spec Spec) {
	phases := map[string]int64{}
	for b.Loop() {
		p, err := Start(context.Background(), spec)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		for _, phase := range p.Phases() {
			phases[phase.Name] += phase.Micros
		}
		if b.N == 1 {
			b.Log(memoryLines(b, p.PID()))
		}
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	for name, micros := range phases {
		b.ReportMetric(float64(micros)/float64(b.N)/1e3, name+"-ms")
	}
}
