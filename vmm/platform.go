package vmm

import (
	"thaw/internal/acpi"
	"thaw/vmm/serial"
)

// platform is what a PC has besides its virtio devices, on I/O ports: the
// serial console, ACPI's sleep register, the keyboard controller's reset line,
// and pvpanic. What no device claims reads as ones, as on a bus.
type platform struct {
	uart *serial.UART
	end  func(Reason, string)
}

// pvpanic, QEMU docs/specs/pvpanic.rst.
const (
	panicEvent       = 1 << 0
	panicCrashLoaded = 1 << 1
)

// resetCommand pulses the processor's reset line through the i8042.
const resetCommand = 0xfe

// in serves a guest's read of len(p) bytes from port.
func (d *platform) in(port uint16, p []byte) {
	for i := range p {
		p[i] = 0xff
	}
	switch {
	case port >= serial.Port && port < serial.Port+serial.Ports:
		p[0] = d.uart.Read(port - serial.Port)
	case port == panicPort:
		p[0] = panicEvent | panicCrashLoaded
	case port == sleepPort, port == sleepPort+1, port == keyboardPort, port == keyboardData:
		p[0] = 0 // nothing pending
	}
}

// out serves a guest's write of p to port.
func (d *platform) out(port uint16, p []byte) {
	v := p[0]
	switch {
	case port >= serial.Port && port < serial.Port+serial.Ports:
		d.uart.Write(port-serial.Port, v)
	case port == sleepPort && v&acpi.SleepEnable != 0:
		if kind := v >> 2 & 7; kind == acpi.SleepTypeOff {
			d.end(Poweroff, "acpi soft off")
		}
	case port == keyboardPort && v == resetCommand:
		d.end(Reset, "keyboard controller reset")
	case port == panicPort && v&panicEvent != 0:
		d.end(Panic, "pvpanic")
	}
}
