package uffd

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func filling(t *testing.T, mem []byte) *FD {
	t.Helper()
	u, err := UserModeOnly()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { u.Close() })
	if err := u.RegisterMissing(Of(mem)); err != nil {
		t.Fatal(err)
	}
	return u
}

// Copied pages are the process's own, in memory of its own and over a file in memory; the
// file is not filled. What is there already is not written over.
func TestCopy(t *testing.T) {
	source := bytes.Repeat([]byte("thaw"), 2*pageSize/4)
	fd, err := unix.MemfdCreate("hole", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, pages*pageSize); err != nil {
		t.Fatal(err)
	}
	hole, err := unix.Mmap(fd, 0, pages*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(hole)
	for name, mem := range map[string][]byte{
		"anonymous": mapped(t, nil, unix.MAP_PRIVATE), "private memfd": mapped(t, file(t, ""), unix.MAP_PRIVATE), "hole of a memfd": hole,
	} {
		t.Run(name, func(t *testing.T) {
			u := filling(t, mem)
			there := mem[10*pageSize:][:2*pageSize]
			if err := u.Copy(there, source); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(there, source) {
				t.Error("pages differ from what was copied")
			}
			if err := u.Copy(mem[9*pageSize:][:2*pageSize], source); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("copy over a page behind one that was not there: %v, want EAGAIN", err)
			}
			if err := u.Copy(mem[11*pageSize:][:2*pageSize], source); !errors.Is(err, unix.EEXIST) {
				t.Errorf("copy over a page: %v, want EEXIST", err)
			}
			if err := u.Copy(mem[20*pageSize:][:pageSize], source); err == nil {
				t.Error("two pages were copied into one")
			}
			if err := u.Unregister(Of(mem)); err != nil {
				t.Fatal(err)
			}
			mem[50*pageSize]++ // would wait
		})
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	if st.Blocks > 8 { // the page that was written to, 512 bytes a block
		t.Errorf("the file has %d blocks", st.Blocks)
	}
}

func TestRegisterMissingRefusesFilesOnDisks(t *testing.T) {
	mem := mapped(t, file(t, t.TempDir()), unix.MAP_PRIVATE)
	u, err := UserModeOnly()
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := u.RegisterMissing(Of(mem)); !errors.Is(err, ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
}
