package boot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"thaw/internal/guestmem"
	"thaw/virtio/queue/queuetest"
)

func file(b []byte) File { return File{bytes.NewReader(b), int64(len(b))} }

// elfKernel is a vmlinux with one segment of code at 16 MiB.
func elfKernel(code []byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, elfHeaderSize+progHeaderSize)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], elfTypeExec)
	le.PutUint16(b[18:], elfMachineX86)
	le.PutUint64(b[24:], 0x100_0000)
	le.PutUint64(b[32:], elfHeaderSize)
	le.PutUint16(b[54:], progHeaderSize)
	le.PutUint16(b[56:], 1)
	p := b[elfHeaderSize:]
	le.PutUint32(p, progLoad)
	le.PutUint64(p[8:], uint64(len(b)))
	le.PutUint64(p[24:], 0x100_0000)
	le.PutUint64(p[32:], uint64(len(code)))
	le.PutUint64(p[40:], uint64(len(code))+4096)
	return append(b, code...)
}

// bzKernel is a bzImage with a one-sector setup.
func bzKernel(code []byte) []byte {
	le := binary.LittleEndian
	b := make([]byte, 1024)
	b[offSetupSects] = 1
	le.PutUint16(b[offBootFlag:], bootFlag)
	b[offJump] = 0x6a
	copy(b[offHeaderMagic:], headerMagic)
	le.PutUint16(b[offProtocol:], 0x20f)
	b[offLoadFlags] = loadedHigh
	le.PutUint16(b[offXLoadFlags:], xlfKernel64)
	le.PutUint64(b[offPrefAddress:], 0x100_0000)
	le.PutUint32(b[offInitSize:], 1<<20)
	return append(b, code...)
}

func TestLoad(t *testing.T) {
	code := []byte("kernel code")
	for _, c := range []struct {
		name   string
		kernel []byte
		entry  uint64
	}{
		{"elf", elfKernel(code), 0x100_0000},
		{"bzimage", bzKernel(code), 0x100_0200},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := queuetest.Memory(t, 128<<20)
			initrd := file([]byte("initramfs"))
			entry, err := Load(mem, Config{Kernel: file(c.kernel), Initrd: &initrd, Cmdline: "console=ttyS0", Tables: []byte("tables")})
			if err != nil {
				t.Fatal(err)
			}
			if entry.RIP != c.entry || entry.RSI != paramsAddress {
				t.Errorf("entry %+v", entry)
			}
			expect(t, mem, 0x100_0000, "kernel code")
			expect(t, mem, cmdlineAddress, "console=ttyS0\x00")
			expect(t, mem, TablesAddress, "tables")
			p := make([]byte, paramsSize)
			if err := mem.ReadAt(p, paramsAddress); err != nil {
				t.Fatal(err)
			}
			le := binary.LittleEndian
			expect(t, mem, uint64(le.Uint32(p[offRamdisk:])), "initramfs")
			if p[offE820Entries] != 3 || le.Uint64(p[offRSDP:]) != TablesAddress {
				t.Errorf("%d memory ranges, RSDP at %#x", p[offE820Entries], le.Uint64(p[offRSDP:]))
			}
		})
	}
}

func expect(t *testing.T, mem *guestmem.Memory, gpa uint64, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if err := mem.ReadAt(got, gpa); err != nil || string(got) != want {
		t.Errorf("at %#x: %q, %v; want %q", gpa, got, err, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	good := elfKernel([]byte("code"))
	change := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		kernel, initrd []byte
		cmdline        string
		mem            uint64
		want           error
	}{
		"empty":               {kernel: nil, want: ErrBadKernel},
		"garbage":             {kernel: bytes.Repeat([]byte("x"), 4096), want: ErrBadKernel},
		"truncated elf":       {kernel: good[:len(good)-1], want: ErrBadKernel},
		"truncated header":    {kernel: good[:40], want: ErrBadKernel},
		"other architecture":  {kernel: change(func(b []byte) { le.PutUint16(b[18:], 183) }), want: ErrBadKernel},
		"32 bit":              {kernel: change(func(b []byte) { b[4] = 1 }), want: ErrBadKernel},
		"shared object":       {kernel: change(func(b []byte) { le.PutUint16(b[16:], 3) }), want: ErrBadKernel},
		"entry elsewhere":     {kernel: change(func(b []byte) { le.PutUint64(b[24:], 0x10) }), want: ErrBadKernel},
		"too many segments":   {kernel: change(func(b []byte) { le.PutUint16(b[56:], 65535) }), want: ErrBadKernel},
		"segment wraps":       {kernel: change(func(b []byte) { le.PutUint64(b[elfHeaderSize+40:], ^uint64(0)) }), want: ErrBadKernel},
		"segment too low":     {kernel: change(func(b []byte) { le.PutUint64(b[elfHeaderSize+24:], 0x1000) }), want: ErrBadKernel},
		"segment above":       {kernel: change(func(b []byte) { le.PutUint64(b[elfHeaderSize+24:], 1<<32) }), want: ErrMemoryTooSmall},
		"file offset wild":    {kernel: change(func(b []byte) { le.PutUint64(b[elfHeaderSize+8:], 1<<62) }), want: ErrBadKernel},
		"truncated bzimage":   {kernel: bzKernel(nil)[:600], want: ErrBadKernel},
		"bzimage no payload":  {kernel: bzKernel(nil), want: ErrBadKernel},
		"memory too small":    {kernel: good, mem: 32 << 20, want: ErrMemoryTooSmall},
		"initramfs too big":   {kernel: good, initrd: make([]byte, 120<<20), want: ErrMemoryTooSmall},
		"initramfs empty":     {kernel: good, initrd: []byte{}, want: ErrBadInitrd},
		"command line length": {kernel: good, cmdline: strings.Repeat("a", 4096), want: ErrBadCmdline},
	} {
		t.Run(name, func(t *testing.T) {
			if c.mem == 0 {
				c.mem = 128 << 20
			}
			cfg := Config{Kernel: file(c.kernel), Cmdline: c.cmdline}
			if c.initrd != nil {
				f := file(c.initrd)
				cfg.Initrd = &f
			}
			if _, err := Load(queuetest.Memory(t, c.mem), cfg); !errors.Is(err, c.want) {
				t.Errorf("err %v, want %v", err, c.want)
			}
		})
	}
}

// FuzzLoad gives the loaders any file. Whatever it holds, there is an error or
// an entry point inside of guest memory.
func FuzzLoad(f *testing.F) {
	f.Add(elfKernel([]byte("code")))
	f.Add(bzKernel([]byte("code")))
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := queuetest.Memory(t, 64<<20)
		entry, err := Load(mem, Config{Kernel: file(b), Cmdline: "quiet"})
		if err == nil && (entry.RIP < highMemory || entry.RIP >= mem.Size()) {
			t.Errorf("entry point %#x", entry.RIP)
		}
	})
}
