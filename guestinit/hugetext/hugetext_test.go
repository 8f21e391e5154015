package hugetext

import (
	"errors"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
)

// What a Python and an agent have mapped, shortened.
const (
	pythonMaps = `00400000-009f3000 r-xp 00000000 00:10 2125                               /usr/bin/python3.13
009f3000-009f4000 r--p 005f2000 00:10 2125                               /usr/bin/python3.13
009f4000-00a85000 rw-p 005f3000 00:10 2125                               /usr/bin/python3.13
00a85000-00af9000 rw-p 00000000 00:00 0 
7ff533930000-7ff534930000 r-xp 00000000 00:10 9708                       /usr/lib/name with (deleted)
7ff535000000-7ff536000000 r-xs 00000000 00:10 9709                       /dev/shm/shared
`
	agentMaps = `00400000-005b4000 r-xp 00000000 00:02 9                                  /init
005b4000-007ba000 r--p 001b4000 00:02 9                                  /init
00a00000-00a17000 rw-p 003ba000 00:02 9                                  /init
00a17000-02a4f000 rw-p 00000000 00:00 0 
`
)

func TestBlocks(t *testing.T) {
	const read, code = unix.PROT_READ, unix.PROT_READ | unix.PROT_EXEC
	for _, c := range []struct {
		name, maps string
		join       bool
		want       []block
	}{
		{"whole", pythonMaps, false, []block{{0x400000, 0, code, false}, {0x600000, 0x200000, code, false}}},
		{"no gap behind it", pythonMaps, true, []block{{0x400000, 0, code, false}, {0x600000, 0x200000, code, false}}},
		{"of another process", agentMaps, false, nil},
		{"its own", agentMaps, true, []block{{0x400000, 0, code, true}, {0x600000, 0x200000, read, true}, {0x800000, 0x400000, 0, true}}},
		{"one of three", "00200000-00700000 r--p 00200000 00:02 9 /a\n", true,
			[]block{{0x200000, 0x200000, read, false}, {0x400000, 0x400000, read, false}}},
		{"gap between files", "00400000-005b4000 r-xp 00000000 00:02 9 /a\n00600000-00806000 r--p 00200000 00:03 9 /b\n", true,
			[]block{{0x600000, 0x200000, read, false}}},
		{"gap and then none of it", "00400000-005b4000 r-xp 00000000 00:02 9 /a\n00600000-00806000 r--p 00000000 00:00 0\n", true, nil},
		{"elsewhere in the file", "00400000-005b4000 r-xp 00000000 00:02 9 /a\n005b4000-00701000 r--p 001b5000 00:02 9 /a\n", true, nil},
		{"none", "", true, nil},
	} {
		maps, err := parse(c.maps)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := blocks(maps, c.join); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, not %+v", c.name, got, c.want)
		}
	}
	if _, err := parse("00400000-005b4000\n"); err == nil {
		t.Error("half a line was taken")
	}
}

// threeBlocks maps a file of three blocks in memory, of which a process has used half of
// the second, and returns what it has.
func threeBlocks(t *testing.T) (mapped, data []byte) {
	t.Helper()
	const size = 3 * hugeSize
	fd, err := unix.MemfdCreate("hugetext", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "hugetext")
	t.Cleanup(func() { f.Close() })
	data = make([]byte, size)
	for i := range data {
		data[i] = byte(i / pageSize)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	b, unmap := mapAt(t, f, size)
	t.Cleanup(unmap)
	for at := range 2 * least { // of the second block
		if b[hugeSize+at*pageSize] != data[hugeSize+at*pageSize] {
			t.Fatal("it reads as something else")
		}
	}
	return b, data
}

// needCollapse skips the test where this kernel, this user or the memory there is does not
// let a block be collapsed, unless REQUIRE_KVM=1: hosts that machines are tested on do. In
// guests, TestProgramsOnHugePages of package integration takes no excuse.
func needCollapse(t *testing.T) {
	t.Helper()
	b, _ := threeBlocks(t)
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		defer unix.Close(fd)
		err = collapse(fd, address(b)+hugeSize)
	}
	for _, refusal := range []error{unix.EPERM, unix.EINVAL, unix.ENOSYS, unix.ENOMEM, unix.EAGAIN, unix.EBUSY} {
		if errors.Is(err, refusal) {
			kvmtest.Unavailable(t, "no huge page of a file in memory here: %v", err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Only the block that was used becomes a huge page.
func TestCollapseUsed(t *testing.T) {
	needCollapse(t)
	b, data := threeBlocks(t)
	// The test's own code may be refused: its file system has no huge pages.
	t.Log(collapseProcess(os.Getpid()))
	if string(b) != string(data) {
		t.Error("the bytes changed")
	}
	if got := pmdMapped(t, b); got != hugeSize {
		t.Errorf("%d bytes are on huge pages, not %d", got, hugeSize)
	}
}

// A block that holds a page which was written before it was protected stays as it is, and
// what joined ones are mapped over with, the program's file, does not get there.
func TestBlockWithOwnPage(t *testing.T) {
	b, data := threeBlocks(t)
	const at = hugeSize + 7*pageSize // in the block that is used
	for _, prot := range []int{unix.PROT_READ | unix.PROT_WRITE, unix.PROT_READ} {
		if err := unix.Mprotect(b, prot); err != nil {
			t.Fatal(err)
		}
		if prot&unix.PROT_WRITE != 0 {
			b[at]++
			data[at]++
		}
	}
	pagemap, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer pagemap.Close()
	for i, want := range []bool{false, true, false} {
		n, own, err := present(pagemap, address(b)+uint64(i)*hugeSize)
		if err != nil || own != want || own && n < 2*least {
			t.Errorf("block %d: %d pages, own %t, %v", i, n, own, err)
		}
	}
	for _, joined := range []bool{false, true} {
		if err := collapseBlocks(os.Getpid(), []block{{at: address(b) + hugeSize, prot: unix.PROT_READ, joined: joined}}); err != nil {
			t.Errorf("joined %t: %v", joined, err)
		}
		if string(b) != string(data) {
			t.Fatalf("joined %t: the bytes changed", joined)
		}
	}
	if got := pmdMapped(t, b); got != 0 {
		t.Errorf("%d bytes are on huge pages", got)
	}
}
