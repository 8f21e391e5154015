package hugetext

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAt maps size bytes of f as a program's code is, at a multiple of 2 MiB.
func mapAt(t *testing.T, f *os.File, size uintptr) (b []byte, unmap func()) {
	t.Helper()
	reserved, err := unix.MmapPtr(-1, 0, nil, size+hugeSize, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	at := unsafe.Add(reserved, -uintptr(reserved)%hugeSize)
	if _, err := unix.MmapPtr(int(f.Fd()), 0, at, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
		t.Fatal(err)
	}
	return unsafe.Slice((*byte)(at), size), func() { unix.MunmapPtr(reserved, size+hugeSize) }
}

// address is where b lies.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// pmdMapped returns how many bytes of the mapping that is b are mapped as huge pages.
func pmdMapped(t *testing.T, b []byte) int {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(fmt.Sprintf(`(?s)\n%x-.*?\nShmemPmdMapped: +(\d+) kB`, unsafe.Pointer(&b[0]))).FindSubmatch(smaps)
	if m == nil {
		t.Fatalf("no mapping at %p", b)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
