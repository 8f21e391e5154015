package kmod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module is an ELF file with a .modinfo section that holds the fields.
func module(t testing.TB, change func(*elf.Header64, *elf.Section64), fields ...string) []byte {
	modinfo := []byte(strings.Join(fields, "\x00") + "\x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	const headers = 64
	hdr := elf.Header64{
		Ident:   [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:    uint16(elf.ET_REL),
		Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Ehsize: headers, Shoff: headers, Shentsize: 64, Shnum: 3, Shstrndx: 2,
	}
	at := uint64(headers + 3*64)
	info := elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: at, Size: uint64(len(modinfo))}
	strs := elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: at + info.Size, Size: uint64(len(names))}
	if change != nil {
		change(&hdr, &info)
	}
	var b bytes.Buffer
	for _, v := range []any{hdr, elf.Section64{}, info, strs, modinfo, names} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []string
		want   Info
	}{
		{"alone", []string{"name=virtio_mmio", "depends=", "license=GPL"}, Info{Name: "virtio_mmio"}},
		{
			"with dependencies",
			[]string{"license=GPL", "name=pvpanic-mmio", "depends=pvpanic,virtio-rng", "vermagic=6.12.1 SMP "},
			Info{Name: "pvpanic_mmio", Depends: []string{"pvpanic", "virtio_rng"}, Vermagic: "6.12.1 SMP "},
		},
		{"with stray strings", []string{"", "noequals", "name=x", "parm=a=b"}, Info{Name: "x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse(module(t, nil, c.fields...))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		ko   []byte
		want string
	}{
		{"nothing", nil, "read module"},
		{"text", []byte("not an ELF file, though it is long enough to be one"), "read module"},
		{"program", module(t, func(h *elf.Header64, _ *elf.Section64) { h.Type = uint16(elf.ET_EXEC) }, "name=x"), "not a module"},
		{"another machine", module(t, func(h *elf.Header64, _ *elf.Section64) { h.Machine = uint16(elf.EM_AARCH64) }, "name=x"), "not a module"},
		{"no modinfo", module(t, func(_ *elf.Header64, s *elf.Section64) { s.Name = 0 }, "name=x"), "no readable"},
		{"compressed modinfo", module(t, func(_ *elf.Header64, s *elf.Section64) { s.Flags = uint64(elf.SHF_COMPRESSED) }, strings.Repeat("name=x", 9)), "no readable"},
		{"modinfo without bytes", module(t, func(_ *elf.Header64, s *elf.Section64) { s.Type = uint32(elf.SHT_NOBITS) }, "name=x"), "no readable"},
		{"huge modinfo", module(t, func(_ *elf.Header64, s *elf.Section64) { s.Size = 1 << 40 }, "name=x"), ".modinfo section of"},
		{"modinfo beyond the end", module(t, func(_ *elf.Header64, s *elf.Section64) { s.Off = 1 << 20 }, "name=x"), "read .modinfo"},
		{"no name", module(t, nil, "depends=a"), "module name"},
		{"name going up", module(t, nil, "name=../x"), "module name"},
		{"dependency going up", module(t, nil, "name=x", "depends=../../etc/x"), "depends on"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(c.ko)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestOrder(t *testing.T) {
	errUnknown := errors.New("unknown module")
	graph := map[string][]string{
		"virtio_net":   {"net_failover"},
		"net_failover": {"failover"},
		"failover":     nil,
		"transport":    {"vsock", "common"},
		"common":       {"vsock"},
		"vsock":        nil,
		"a":            {"b"}, "b": {"c"}, "c": {"a"},
		"self":   {"self"},
		"broken": {"missing"},
	}
	info := func(name string) (Info, error) {
		deps, ok := graph[name]
		if !ok {
			return Info{}, errUnknown
		}
		return Info{Name: name, Depends: deps}, nil
	}
	for _, c := range []struct {
		name   string
		wanted []string
		want   []string
	}{
		{"nothing", nil, nil},
		{"chain", []string{"virtio-net"}, []string{"failover", "net_failover", "virtio_net"}},
		{"diamond", []string{"transport"}, []string{"vsock", "common", "transport"}},
		{"named twice", []string{"vsock", "transport", "vsock"}, []string{"vsock", "common", "transport"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Order(c.wanted, info)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
	for _, name := range []string{"a", "self"} {
		if _, err := Order([]string{name}, info); err == nil || !strings.Contains(err.Error(), "depend on each other") {
			t.Errorf("cycle from %s: error %v", name, err)
		}
	}
	if _, err := Order([]string{"broken"}, info); !errors.Is(err, errUnknown) {
		t.Errorf("missing dependency: error %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(module(f, nil, "name=virtio_net", "depends=net_failover", "vermagic=6.12"))
	f.Add(module(f, nil, "name=", "depends=,,"))
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, ko []byte) {
		info, err := Parse(ko)
		if err == nil && !validName(info.Name) {
			t.Errorf("module name %q without an error", info.Name)
		}
	})
}
