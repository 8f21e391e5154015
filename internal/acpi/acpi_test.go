package acpi

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"thaw/internal/kvmtest"
)

var full = Config{
	VCPUs: 8, SerialGSI: 4,
	Virtio:            []VirtioDevice{{0xc0000000, 0x1000, 5}, {0xc0001000, 0x1000, 6}},
	GenerationAddress: 0xf0000, GenerationGSI: 14, EventGSI: 15, PanicPort: 0x505, SleepPort: 0x600, ResetPort: 0x64, ResetValue: 0xfe,
}

// tables splits what Build returned by following its pointers.
func tables(t *testing.T, out []byte, base uint64) map[string][]byte {
	t.Helper()
	if string(out[:8]) != "RSD PTR " || checksum(out[:20]) != 0 || checksum(out[:36]) != 0 {
		t.Fatal("RSDP is damaged")
	}
	found := map[string][]byte{}
	read := func(at uint64) []byte {
		b := out[at-base:]
		b = b[:binary.LittleEndian.Uint32(b[4:])]
		if checksum(b) != 0 {
			t.Errorf("checksum of %s", b[:4])
		}
		found[string(b[:4])] = b
		return b
	}
	xsdt := read(binary.LittleEndian.Uint64(out[24:]))
	for e := xsdt[headerSize:]; len(e) > 0; e = e[8:] {
		read(binary.LittleEndian.Uint64(e))
	}
	read(binary.LittleEndian.Uint64(found["FACP"][140:]))
	return found
}

func TestBuild(t *testing.T) {
	const base = 0xe0000
	out, err := Build(full, base)
	if err != nil {
		t.Fatal(err)
	}
	found := tables(t, out, base)
	if n := len(found["FACP"]); n != 276 {
		t.Errorf("FADT has %d bytes, want 276", n)
	}
	if n := bytes.Count(found["DSDT"], []byte("LNRO0005")); n != 2 {
		t.Errorf("%d virtio devices in the DSDT", n)
	}
	if n := len(found["APIC"]); n != headerSize+8+8*8+12 {
		t.Errorf("MADT has %d bytes", n)
	}
}

// TestDisassembles has ACPICA, the reference implementation, read the tables.
func TestDisassembles(t *testing.T) {
	iasl, err := exec.LookPath("iasl")
	if err != nil {
		kvmtest.Unavailable(t, "iasl is missing: install acpica-tools")
	}
	const base = 0xe0000
	out, err := Build(full, base)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for sig, b := range tables(t, out, base) {
		path := filepath.Join(dir, sig+".aml")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := exec.Command(iasl, "-d", path).CombinedOutput()
		if err != nil || bytes.Contains(log, []byte("rror")) {
			t.Errorf("%s: %v\n%s", sig, err, log)
		}
	}
	source, err := os.ReadFile(filepath.Join(dir, "DSDT.dsl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`Name (_HID, EisaId ("PNP0501")`, "Memory32Fixed (ReadWrite,", `"VM_Gen_Counter"`,
		"Notify (VGEN, 0x80)", "Name (_S5, Package (0x04)", "Interrupt (ResourceConsumer, Edge, ActiveHigh, Exclusive",
	} {
		if !strings.Contains(string(source), want) {
			t.Errorf("disassembly lacks %q", want)
		}
	}
	// It compiles again: no warning about names that do not resolve.
	log, err := exec.Command(iasl, filepath.Join(dir, "DSDT.dsl")).CombinedOutput()
	if err != nil {
		t.Errorf("compile again: %v\n%s", err, log)
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, f := range map[string]func(*Config) uint64{
		"no vcpus":   func(c *Config) uint64 { c.VCPUs = 0; return 0 },
		"many vcpus": func(c *Config) uint64 { c.VCPUs = 256; return 0 },
		"unaligned":  func(*Config) uint64 { return 8 },
		"high":       func(*Config) uint64 { return 1 << 32 },
	} {
		cfg := full
		base := f(&cfg)
		if _, err := Build(cfg, base); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
