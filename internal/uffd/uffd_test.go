package uffd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/pagemap"
)

const pages = 4096 // more than the kernel tells of at once

func device(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(Device, os.O_RDWR, 0)
	if err != nil {
		if os.Getenv("REQUIRE_KVM") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func open(t *testing.T, features Features) *FD {
	t.Helper()
	u, err := Open(device(t), features)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	return u
}

// file returns pages of ones: in memory or, with a folder, on a disk.
func file(t *testing.T, folder string) *os.File {
	t.Helper()
	var f *os.File
	if folder == "" {
		fd, err := unix.MemfdCreate("uffd", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f = os.NewFile(uintptr(fd), "memfd")
	} else {
		var err error
		if f, err = os.Create(filepath.Join(folder, "file")); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { f.Close() })
	b := make([]byte, pages*pageSize)
	for i := range b {
		b[i] = 1
	}
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f
}

// mapped returns memory that is private, of f or anonymous, or shared.
func mapped(t *testing.T, f *os.File, flags int) []byte {
	t.Helper()
	fd := -1
	if f == nil {
		flags |= unix.MAP_ANONYMOUS
	} else {
		fd = int(f.Fd())
	}
	mem, err := unix.Mmap(fd, 0, pages*pageSize, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	return mem
}

func none(pagemap.Range) {}

// What the asynchronous form tells of each kind of mapping that guests have.
func TestAsynchronous(t *testing.T) {
	self, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	scan := pagemap.New(self)
	for _, c := range []struct {
		name string
		mem  []byte
	}{
		{"anonymous", mapped(t, nil, unix.MAP_PRIVATE)},
		{"private memfd", mapped(t, file(t, ""), unix.MAP_PRIVATE)},
		{"private file", mapped(t, file(t, t.TempDir()), unix.MAP_PRIVATE)},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.mem[3*pageSize] = 7 // before anything
			if err := scan.Protect(c.mem, none); !errors.Is(err, pagemap.ErrNotSupported) {
				t.Fatalf("protect unregistered memory: %v", err)
			}
			u := open(t, WriteProtectAsync|WriteProtectUnpopulated)
			if err := u.Register(Of(c.mem)); err != nil {
				t.Fatal(err)
			}
			want := func(what string, want ...pagemap.Range) {
				t.Helper()
				got, err := scan.Written(c.mem, nil)
				if err != nil {
					t.Fatal(err)
				}
				if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
			want("registered", pagemap.Range{First: 3, Count: 1})
			var got []pagemap.Range
			err := scan.Protect(c.mem, func(r pagemap.Range) { got = append(got, r) })
			if err != nil || !reflect.DeepEqual(got, []pagemap.Range{{First: 3, Count: 1}}) {
				t.Fatalf("protected %v, %v", got, err)
			}
			want("protected")
			sum := 0
			for i := 0; i < len(c.mem); i += pageSize {
				sum += int(c.mem[i])
			}
			want("read")
			c.mem[3*pageSize+9], c.mem[5*pageSize], c.mem[6*pageSize] = byte(sum), 2, 2
			want("written", pagemap.Range{First: 3, Count: 1}, pagemap.Range{First: 5, Count: 2})
			// A part at a time.
			if err := scan.Protect(c.mem[5*pageSize:6*pageSize], none); err != nil {
				t.Fatal(err)
			}
			want("protected in part", pagemap.Range{First: 3, Count: 1}, pagemap.Range{First: 6, Count: 1})
			if err := u.Protect(Of(c.mem[3*pageSize : 4*pageSize])); err != nil {
				t.Fatal(err)
			}
			want("protected by the descriptor", pagemap.Range{First: 6, Count: 1})
			if err := unix.Madvise(c.mem, unix.MADV_DONTNEED); err != nil {
				t.Fatal(err)
			}
			want("given back")
			c.mem[3*pageSize] = 1
			want("written again", pagemap.Range{First: 3, Count: 1})
			if err := u.Unregister(Of(c.mem)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// While pages are written, each round protects and copies what was written since the
// one before: after a last round that nothing disturbs, the copy is whole.
func TestAsynchronousMissesNothing(t *testing.T) {
	self, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	scan := pagemap.New(self)
	mem := mapped(t, nil, unix.MAP_PRIVATE)
	u := open(t, WriteProtectAsync|WriteProtectUnpopulated)
	if err := u.Register(Of(mem)); err != nil {
		t.Fatal(err)
	}
	have := make([]byte, len(mem))
	round := func() {
		var list []pagemap.Range
		if err := scan.Protect(mem, func(r pagemap.Range) { list = append(list, r) }); err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			from, to := r.First*pageSize, (r.First+r.Count)*pageSize
			copy(have[from:to], mem[from:to])
		}
	}
	for range 50 {
		var stop atomic.Bool
		var writers sync.WaitGroup
		for seed := range uint64(2) {
			writers.Go(func() {
				for i := seed; !stop.Load(); i++ {
					at := i * 2654435761 % pages * pageSize
					binary.LittleEndian.PutUint64(mem[at+8*seed:], i)
				}
			})
		}
		for range 10 {
			round()
		}
		stop.Store(true)
		writers.Wait()
		round()
		if !bytes.Equal(have, mem) {
			t.Fatal("a write was missed")
		}
		if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		clear(have)
	}
}

// The synchronous form takes memfds and anonymous memory, and refuses files.
func TestSynchronousKinds(t *testing.T) {
	dir := t.TempDir()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		mem  []byte
		want error
	}{
		{"anonymous", mapped(t, nil, unix.MAP_PRIVATE), nil},
		{"private memfd", mapped(t, file(t, ""), unix.MAP_PRIVATE), nil},
		{"private file", mapped(t, file(t, dir), unix.MAP_PRIVATE), ErrNotSupported},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want != nil && st.Type == unix.TMPFS_MAGIC {
				t.Skip("the folder for files is in memory too")
			}
			u := open(t, WriteProtect|WriteProtectShmem)
			if err := u.Register(Of(c.mem)); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
