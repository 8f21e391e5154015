package hugetext

import (
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
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

// Only the block that was used becomes a huge page.
func TestCollapseUsed(t *testing.T) {
	const size = 3 * hugeSize
	fd, err := unix.MemfdCreate("hugetext", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "hugetext")
	defer f.Close()
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i / pageSize)
	}
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	b, unmap := mapAt(t, f, size)
	defer unmap()
	for at := range 2 * least { // of the second block
		if b[hugeSize+at*pageSize] != data[hugeSize+at*pageSize] {
			t.Fatal("it reads as something else")
		}
	}
	// The test's own code may be refused: its file system has no huge pages.
	n, err := collapseProcess(os.Getpid())
	t.Logf("%d blocks, %v", n, err)
	if string(b) != string(data) {
		t.Error("the bytes changed")
	}
	if got := pmdMapped(t, b); got != hugeSize {
		t.Errorf("%d bytes are on huge pages, not %d", got, hugeSize)
	}
}
