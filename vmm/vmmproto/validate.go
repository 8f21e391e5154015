package vmmproto

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"thaw/internal/kvm"
)

// FileNames lists the descriptors that the message needs, in the order in which they travel: "kvm", and unless it is a
// shell "memory", "kernel", then as the machine has them "initrd", "disk.ID.N" for each layer, "vsock", "tap"; a
// shell also "handler", a socket to a process that may come to answer its write faults.
func (m *Start) FileNames() []string {
	names := []string{"kvm"}
	if !m.Shell {
		names = append(names, "memory", "kernel")
	}
	if m.Initrd {
		names = append(names, "initrd")
	}
	for _, d := range m.Disks {
		for n := range d.Layers {
			names = append(names, DiskFile(d.ID, n))
		}
	}
	if m.Vsock != nil {
		names = append(names, "vsock")
	}
	if m.Net != nil {
		names = append(names, "tap")
	}
	if m.Shell {
		names = append(names, "handler")
	}
	return names
}

// DiskFile names the descriptor of layer n of a disk.
func DiskFile(id string, n int) string { return fmt.Sprintf("disk.%s.%d", id, n) }

// Validate checks what can be checked without the machine: package vmm knows what it can run.
func (m *Start) Validate() error {
	switch {
	case m.VCPUs < 1 || m.VCPUs > MaxVCPUs:
		return fmt.Errorf("vcpus %d: not in 1..%d", m.VCPUs, MaxVCPUs)
	case m.MemoryBytes == 0 || m.MemoryBytes > MaxMemory || m.MemoryBytes%4096 != 0:
		return fmt.Errorf("memory_bytes %d: not a multiple of 4096 in 4096..%d", m.MemoryBytes, int64(MaxMemory))
	case len(m.Cmdline) > MaxCmdline:
		return fmt.Errorf("cmdline: %d bytes, most is %d", len(m.Cmdline), MaxCmdline)
	case strings.IndexFunc(m.Cmdline, isControl) >= 0:
		return fmt.Errorf("cmdline: has control characters")
	case m.ConsoleLog < 0 || m.ConsoleLog > 1<<20:
		return fmt.Errorf("console_log %d: not in 0..%d", m.ConsoleLog, 1<<20)
	case len(m.CPUID) > MaxCPUID || len(m.CPUID)%kvm.CPUIDBytes != 0:
		return fmt.Errorf("cpuid: %d bytes, not entries of %d, or more than %d", len(m.CPUID), kvm.CPUIDBytes, MaxCPUID)
	case len(m.Disks) > MaxDisks:
		return fmt.Errorf("disks: %d, most is %d", len(m.Disks), MaxDisks)
	case m.Shell && (m.Initrd || m.Cmdline != ""):
		return fmt.Errorf("shell: has no initrd and no command line")
	case m.Vsock != nil && (m.Vsock.CID < 3 || m.Vsock.CID > 0xffffffff-1):
		// virtio 1.3 §5.10.4: 0 to 2 and the all-ones value are reserved, the upper 32 bits are zero.
		return fmt.Errorf("vsock cid %d: reserved", m.Vsock.CID)
	case m.Net != nil && m.Net.MAC[0]&1 != 0:
		return fmt.Errorf("net mac: a multicast address")
	}
	seen := map[string]bool{}
	for _, d := range m.Disks {
		if err := checkName("disk id", d.ID, 20); err != nil {
			return err
		}
		if seen[d.ID] {
			return fmt.Errorf("disk id %q: twice", d.ID)
		}
		seen[d.ID] = true
		if m.Shell && d.Layers != 0 {
			return fmt.Errorf("disk %s: a shell's has no layers yet", d.ID)
		}
		if !m.Shell && (d.Layers < 1 || d.Layers > MaxLayers) {
			return fmt.Errorf("disk %s: %d layers, not in 1..%d", d.ID, d.Layers, MaxLayers)
		}
	}
	if want := m.FileNames(); len(want) > MaxFiles || !slices.Equal(m.Files, want) {
		return fmt.Errorf("files: %d names that are not the %d of this machine", len(m.Files), len(want))
	}
	return nil
}

func (m *Ping) Validate() error           { return nil }
func (m *Pause) Validate() error          { return nil }
func (m *Resume) Validate() error         { return nil }
func (m *Stop) Validate() error           { return nil }
func (m *StatsRequest) Validate() error   { return nil }
func (m *ConsoleRequest) Validate() error { return nil }
func (m *MemoryStats) Validate() error    { return nil }
func (m *Connected) Validate() error      { return nil }
func (m *Refused) Validate() error        { return nil }
func (m *Connect) Validate() error        { return nil } // every port may be asked for

func (m *SetBalloon) Validate() error {
	if m.MiB > MaxMemory>>20 {
		return fmt.Errorf("mib %d: most is %d", m.MiB, MaxMemory>>20)
	}
	return nil
}

func (m *Started) Validate() error { return checkPhases(m.Phases) }

func checkPhases(list []Phase) error {
	if len(list) > MaxPhases {
		return fmt.Errorf("phases: %d, most is %d", len(list), MaxPhases)
	}
	for _, p := range list {
		if err := checkName("phase", p.Name, 64); err != nil {
			return err
		}
		if !anHour(p.Micros) {
			return fmt.Errorf("phase %s: %d µs, more than an hour or negative", p.Name, p.Micros)
		}
	}
	return nil
}

// anHour says whether a time can be one of a machine's: an hour at most.
func anHour(micros int64) bool { return micros >= 0 && micros <= 3600*1e6 }

func (m *Failed) Validate() error {
	if err := checkName("stage", m.Stage, 64); err != nil {
		return err
	}
	return checkText("detail", m.Detail)
}

func (m *Pong) Validate() error    { return checkConsole(m.Console) }
func (m *Done) Validate() error    { return checkText("error", m.Error) }
func (m *Console) Validate() error { return checkConsole(m.Tail) }

func (m *Stats) Validate() error {
	if len(m.Values) > MaxStats {
		return fmt.Errorf("values: %d, most is %d", len(m.Values), MaxStats)
	}
	for name := range m.Values {
		if err := checkName("value", name, 64); err != nil {
			return err
		}
	}
	return nil
}

func (m *Exited) Validate() error {
	switch m.Reason {
	case Poweroff, Reset, Panic, TripleFault, Stopped, Internal:
	default:
		return fmt.Errorf("reason %.40q: unknown", m.Reason)
	}
	if err := checkText("detail", m.Detail); err != nil {
		return err
	}
	return checkConsole(m.Console)
}

// checkName takes names that are safe in a metric, a log line and a file name.
func checkName(what, s string, most int) error {
	if s == "" || len(s) > most {
		return fmt.Errorf("%s: %d bytes, not in 1..%d", what, len(s), most)
	}
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.') {
			return fmt.Errorf("%s %q: only a-z, 0-9, '_', '-' and '.'", what, s)
		}
	}
	return nil
}

// checkText takes texts that can be shown on a terminal: see [CleanText].
func checkText(what, s string) error {
	if len(s) > MaxDetail {
		return fmt.Errorf("%s: %d bytes, most is %d", what, len(s), MaxDetail)
	}
	if !utf8.ValidString(s) || strings.IndexFunc(s, isControl) >= 0 {
		return fmt.Errorf("%s: not plain text", what)
	}
	return nil
}

func checkConsole(b []byte) error {
	if len(b) > MaxConsole {
		return fmt.Errorf("console: %d bytes, most is %d", len(b), MaxConsole)
	}
	return nil
}

func isControl(r rune) bool {
	return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0
}

// CleanText makes any string fit for a text field: control characters and bytes that are not UTF-8 become
// '?', and what is too long loses its middle.
func CleanText(s string) string {
	s = strings.Map(func(r rune) rune {
		if isControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	const gap = "\n[…]\n"
	if len(s) > MaxDetail {
		half := (MaxDetail - len(gap)) / 2
		// A cut inside a rune leaves bytes that are not UTF-8: drop them.
		s = strings.ToValidUTF8(s[:half], "") + gap + strings.ToValidUTF8(s[len(s)-half:], "")
	}
	return s
}
