// Package acpi builds the tables that tell a guest what its machine has: RSDP,
// XSDT, FADT, MADT and a DSDT (ACPI 6.5). The machine is of the
// hardware-reduced kind (§4.1): no power management timer, no SCI, no PIC and
// PIT, so that a kernel spends no time looking for them.
package acpi

import (
	"encoding/binary"
	"fmt"
)

// Config describes the machine.
type Config struct {
	VCPUs  int
	Virtio []VirtioDevice
	// Serial describes a 16550 at I/O port 0x3f8; zero GSI: none.
	SerialGSI uint32
	// GenerationAddress is where the 16 bytes of the VM generation id are, in
	// guest physical memory; zero: none. When they change one of two lines is raised:
	// GenerationGSI, which is the device's own, for kernels whose driver takes it, or
	// EventGSI, from which every kernel makes the notification that the device is known for.
	GenerationAddress uint64
	GenerationGSI     uint32
	EventGSI          uint32
	// PanicPort is the pvpanic device's I/O port; zero: none.
	PanicPort uint16
	// SleepPort is the sleep control register's I/O port, the status register
	// follows it (§4.8.3.7). ResetPort takes ResetValue to reset.
	SleepPort  uint16
	ResetPort  uint16
	ResetValue uint8
}

// VirtioDevice is a virtio device's register window and interrupt line.
type VirtioDevice struct {
	Base uint32
	Size uint32
	GSI  uint32
}

// Addresses of the interrupt controllers, fixed in KVM.
const (
	localAPIC = 0xfee0_0000
	ioAPIC    = 0xfec0_0000
)

// SleepTypeOff is the sleep type of S5, soft off: what the guest writes to
// the sleep control register, in bits 2 to 4, with SleepEnable.
const (
	SleepTypeOff = 5
	SleepEnable  = 1 << 5
)

// Build returns the tables, to be placed at guest physical address base with
// the RSDP at the start. base must be below 4 GiB and a multiple of 16.
func Build(cfg Config, base uint64) ([]byte, error) {
	if base%16 != 0 || base >= 1<<32 || cfg.VCPUs < 1 || cfg.VCPUs > 255 {
		return nil, fmt.Errorf("acpi: build tables at %#x for %d vcpus: out of range", base, cfg.VCPUs)
	}
	const rsdpSize = 36
	out := make([]byte, (rsdpSize+15)&^15)
	add := func(table []byte) uint64 {
		at := base + uint64(len(out))
		out = append(out, table...)
		for len(out)%16 != 0 {
			out = append(out, 0)
		}
		return at
	}
	dsdt := add(table("DSDT", 2, dsdtBody(cfg)))
	fadt := add(table("FACP", 6, fadtBody(cfg, dsdt)))
	madt := add(table("APIC", 5, madtBody(cfg)))
	var entries []byte
	for _, at := range []uint64{fadt, madt} {
		entries = binary.LittleEndian.AppendUint64(entries, at)
	}
	xsdt := add(table("XSDT", 1, entries))
	copy(out, rsdp(xsdt))
	return out, nil
}

// Who made the tables, as every header says.
const (
	oemID   = "THAW  "
	creator = "THAW"
)

// headerSize is the length of the header that all tables share (§5.2.6).
const headerSize = 36

// table puts the header in front of body and sets the checksum.
func table(signature string, revision byte, body []byte) []byte {
	t := make([]byte, headerSize, headerSize+len(body))
	copy(t, signature)
	binary.LittleEndian.PutUint32(t[4:], uint32(headerSize+len(body)))
	t[8] = revision
	copy(t[10:], oemID)
	copy(t[16:], "MICROVM ")
	binary.LittleEndian.PutUint32(t[24:], 1)
	copy(t[28:], creator)
	binary.LittleEndian.PutUint32(t[32:], 1)
	t = append(t, body...)
	t[9] = checksum(t)
	return t
}

func checksum(b []byte) byte {
	var sum byte
	for _, v := range b {
		sum += v
	}
	return -sum
}

// rsdp is the root pointer, revision 2 (§5.2.5.3).
func rsdp(xsdt uint64) []byte {
	r := make([]byte, 36)
	copy(r, "RSD PTR ")
	copy(r[9:], oemID)
	r[15] = 2
	binary.LittleEndian.PutUint32(r[20:], uint32(len(r)))
	binary.LittleEndian.PutUint64(r[24:], xsdt)
	r[8] = checksum(r[:20])
	r[32] = checksum(r)
	return r
}

// fadtBody is the fixed description table behind its header (§5.2.9).
func fadtBody(cfg Config, dsdt uint64) []byte {
	const (
		size            = 276
		flagWBINVD      = 1 << 0
		flagResetReg    = 1 << 10
		flagHWReduced   = 1 << 20
		bootNoVGA       = 1 << 2
		bootNoMSI       = 1 << 3
		bootNoCMOS      = 1 << 5
		offBootArch     = 109
		offFlags        = 112
		offResetReg     = 116
		offResetValue   = 128
		offMinor        = 131
		offXDSDT        = 140
		offSleepControl = 244
		offSleepStatus  = 256
		offHypervisor   = 268
	)
	f := make([]byte, size)
	binary.LittleEndian.PutUint16(f[offBootArch:], bootNoVGA|bootNoMSI|bootNoCMOS)
	binary.LittleEndian.PutUint32(f[offFlags:], flagWBINVD|flagResetReg|flagHWReduced)
	putPort(f[offResetReg:], cfg.ResetPort)
	f[offResetValue] = cfg.ResetValue
	f[offMinor] = 5
	binary.LittleEndian.PutUint64(f[offXDSDT:], dsdt)
	putPort(f[offSleepControl:], cfg.SleepPort)
	putPort(f[offSleepStatus:], cfg.SleepPort+1)
	copy(f[offHypervisor:], "KVM")
	return f[headerSize:]
}

// putPort writes a generic address of one byte of I/O space (§5.2.3.2).
func putPort(dst []byte, port uint16) {
	copy(dst, []byte{1, 8, 0, 1})
	binary.LittleEndian.PutUint64(dst[4:], uint64(port))
}

// madtBody lists the interrupt controllers (§5.2.12).
func madtBody(cfg Config) []byte {
	b := binary.LittleEndian.AppendUint32(nil, localAPIC)
	b = binary.LittleEndian.AppendUint32(b, 0) // no 8259
	for id := range cfg.VCPUs {
		b = append(b, 0, 8, byte(id), byte(id), 1, 0, 0, 0)
	}
	b = append(b, 1, 12, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, ioAPIC)
	return binary.LittleEndian.AppendUint32(b, 0)
}

// dsdtBody describes the devices.
func dsdtBody(cfg Config) []byte {
	var devices [][]byte
	if cfg.SerialGSI != 0 {
		devices = append(devices, device("COM1",
			name("_HID", eisaID("PNP0501")),
			name("_UID", integer(0)),
			resources(ports(0x3f8, 8), interrupt(cfg.SerialGSI))))
	}
	for i, v := range cfg.Virtio {
		devices = append(devices, device(fmt.Sprintf("VR%02X", i),
			name("_HID", str("LNRO0005")), // what Linux's virtio-mmio looks for
			name("_UID", integer(uint64(i))),
			name("_CCA", integer(1)),
			resources(memory32(v.Base, v.Size), interrupt(v.GSI))))
	}
	if cfg.PanicPort != 0 {
		devices = append(devices, device("PEVT",
			name("_HID", str("QEMU0001")),
			name("_STA", integer(0xf)),
			resources(ports(cfg.PanicPort, 1))))
	}
	if cfg.GenerationAddress != 0 {
		devices = append(devices,
			device("VGEN",
				name("_HID", str("THAW0001")),
				name("_CID", str("VM_Gen_Counter")),
				name("_DDN", str("VM_Gen_Counter")),
				name("ADDR", pkg(integer(cfg.GenerationAddress&0xffff_ffff), integer(cfg.GenerationAddress>>32))),
				resources(interrupt(cfg.GenerationGSI))),
			// A generic event device (§5.6.9) turns its interrupt into the
			// notification that the generation has changed.
			device("GED_",
				name("_HID", str("ACPI0013")),
				resources(interrupt(cfg.EventGSI)),
				method1("_EVT", notify("VGEN", 0x80))))
	}
	return append(scope("_SB_", devices...),
		name("_S5_", pkg(integer(SleepTypeOff), integer(0), integer(0), integer(0)))...)
}
