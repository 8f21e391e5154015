package vmm

// Where the machine's parts are in the guest's physical address space and
// among its interrupt lines.
const (
	// registerBase is the first virtio device's register page; one page a
	// device, in the hole below 4 GiB.
	registerBase = 0xd000_0000

	// generationAddress holds the VM generation id, in the reserved range
	// behind the ACPI tables.
	generationAddress = 0xff000

	serialGSI     = 4
	eventGSI      = 9
	generationGSI = 10
	firstVirtio   = 16 // GSI of the first virtio device: above all ISA lines
	virtioDevices = 8  // 16 to 23, the I/O APIC's last line
)

// I/O ports.
const (
	sleepPort    = 0x600 // ACPI sleep control, status behind it
	keyboardPort = 0x64  // i8042 command
	keyboardData = 0x60
	panicPort    = 0x505 // pvpanic, as on QEMU
)

// Memory slots: RAM first.
const registerSlot = 8
