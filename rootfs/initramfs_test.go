package rootfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"
)

// elfFile returns the smallest ELF file (64-bit, little endian; ELF-64 object
// file format 1.5 §1) of a type for a machine, with one program header when
// segment is not 0.
func elfFile(typ, machine uint16, segment uint32) []byte {
	h := make([]byte, 64)
	copy(h, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(h[16:], typ)
	le.PutUint16(h[18:], machine)
	le.PutUint32(h[20:], 1)
	le.PutUint64(h[32:], 64) // program headers follow
	le.PutUint16(h[52:], 64)
	le.PutUint16(h[54:], 56)
	le.PutUint16(h[58:], 64)
	if segment == 0 {
		return h
	}
	le.PutUint16(h[56:], 1)
	p := make([]byte, 56)
	le.PutUint32(p, segment)
	return append(h, p...)
}

// twoSegments is elfFile's program with 2 pages at 4 MiB and something at an address.
func twoSegments(second uint64) []byte {
	b := elfFile(etEXEC, emX8664, ptLOAD)
	b = append(b, b[64:]...)
	le := binary.LittleEndian
	le.PutUint16(b[56:], 2)
	le.PutUint64(b[64+16:], 0x400000) // p_vaddr
	le.PutUint64(b[64+40:], 0x2000)   // p_memsz
	le.PutUint64(b[120+16:], second)
	return b
}

const (
	etREL, etEXEC, etCORE = 1, 2, 4
	emX86, emX8664, emARM = 3, 62, 183
	ptLOAD, ptINTERP      = 1, 3
)

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestInitramfs(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx := context.Background()
	program, module := elfFile(etEXEC, emX8664, ptLOAD), elfFile(etREL, emX8664, 0)
	init := writeFile(t, "thaw-init", program)
	modules := []string{writeFile(t, "virtio_mmio.ko", module), writeFile(t, "ext4.ko", append(module, 0))}
	path, err := Initramfs(ctx, init, modules)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	type file struct {
		Name         string
		Mode         uint64
		Major, Minor uint64
		Size         uint64
	}
	var got []file
	for _, r := range records {
		if r.UID != 0 || r.GID != 0 || r.MTime != 0 {
			t.Errorf("%s: owner %d:%d time %d, want 0", r.Name, r.UID, r.GID, r.MTime)
		}
		got = append(got, file{r.Name, r.Mode, r.Rmajor, r.Rminor, r.FileSize})
	}
	want := []file{
		{"dev", 0o40755, 0, 0, 0}, {"dev/console", 0o20600, 5, 1, 0}, {"dev/null", 0o20666, 1, 3, 0},
		{"newroot", 0o40755, 0, 0, 0}, {"proc", 0o40755, 0, 0, 0}, {"sys", 0o40755, 0, 0, 0},
		{"init", 0o100755, 0, 0, uint64(len(program))},
		{"modules", 0o40755, 0, 0, 0}, {"modules/virtio_mmio.ko", 0o100644, 0, 0, 64}, {"modules/ext4.ko", 0o100644, 0, 0, 65},
		{"modules/order", 0o100644, 0, 0, uint64(len("virtio_mmio.ko\next4.ko\n"))},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	t.Run("same content, other place, new cache", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		again, err := Initramfs(ctx, writeFile(t, "init2", program),
			[]string{writeFile(t, "virtio_mmio.ko", module), writeFile(t, "ext4.ko", append(module, 0))})
		if err != nil {
			t.Fatal(err)
		}
		second, err := os.ReadFile(again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(raw, second) {
			t.Error("archives differ")
		}
	})
	t.Run("segments side by side", func(t *testing.T) {
		if _, err := Initramfs(ctx, writeFile(t, "init3", twoSegments(0x402000)), nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("order decides", func(t *testing.T) {
		other, err := Initramfs(ctx, init, []string{modules[1], modules[0]})
		if err != nil || other == path {
			t.Errorf("%s, %v: want another archive", other, err)
		}
	})
}

func TestInitramfsRefuses(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	program, module := elfFile(etEXEC, emX8664, ptLOAD), elfFile(etREL, emX8664, 0)
	good := writeFile(t, "init", program)
	x86 := elfFile(etEXEC, emX86, ptLOAD)
	x86[4] = 1 // 32-bit class with a 64-bit layout: truncated for its reader
	big := writeFile(t, "big", program)
	if err := os.Truncate(big, maxInit+1); err != nil {
		t.Fatal(err)
	}
	many := make([]string, maxModules+1)
	tests := []struct {
		name    string
		init    string
		modules []string
		want    error
	}{
		{"init missing", filepath.Join(t.TempDir(), "none"), nil, ErrInit},
		{"init a folder", t.TempDir(), nil, ErrInit},
		{"init empty", writeFile(t, "init", nil), nil, ErrInit},
		{"init a script", writeFile(t, "init", []byte("#!/bin/sh\n")), nil, ErrInit},
		{"init truncated", writeFile(t, "init", program[:40]), nil, ErrInit},
		{"init for arm64", writeFile(t, "init", elfFile(etEXEC, emARM, ptLOAD)), nil, ErrInit},
		{"init 32-bit", writeFile(t, "init", x86), nil, ErrInit},
		{"init a module", writeFile(t, "init", module), nil, ErrInit},
		{"init a core dump", writeFile(t, "init", elfFile(etCORE, emX8664, ptLOAD)), nil, ErrInit},
		{"init dynamic", writeFile(t, "init", elfFile(etEXEC, emX8664, ptINTERP)), nil, ErrInit},
		{"init with segments over each other", writeFile(t, "init", twoSegments(0x401fff)), nil, ErrInit},
		{"init too big", big, nil, ErrInit},
		{"module missing", good, []string{"/none/x.ko"}, ErrModule},
		{"module compressed", good, []string{writeFile(t, "x.ko.xz", module)}, ErrModule},
		{"module a program", good, []string{writeFile(t, "x.ko", program)}, ErrModule},
		{"module for arm64", good, []string{writeFile(t, "x.ko", elfFile(etREL, emARM, 0))}, ErrModule},
		{"module twice", good, []string{writeFile(t, "x.ko", module), writeFile(t, "x.ko", module)}, ErrModule},
		{"too many modules", good, many, ErrModule},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Initramfs(context.Background(), tt.init, tt.modules); !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}
