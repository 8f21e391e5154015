package guestmem

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What Reclaim says of reserved memory is what the guest finds there.
func TestReclaimReserved(t *testing.T) {
	m, err := Reserve(64 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	path := filepath.Join(t.TempDir(), "template")
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, 16*PageSize), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, at := range []uint64{8, 40} {
		if err := m.MapFile(file, 0, at*PageSize, 8*PageSize); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		first, n uint64 // pages
		zeros    bool
	}{
		{0, 8, true}, {16, 24, true}, {48, 16, true}, // beside the files
		{8, 8, false}, {10, 2, false}, {42, 1, false}, // in them
		{7, 2, false}, {15, 2, false}, {0, 64, false}, // partly in them
	} {
		if err := m.WriteAt(bytes.Repeat([]byte{1}, int(c.n*PageSize)), c.first*PageSize); err != nil {
			t.Fatal(err)
		}
		zeros, err := m.Reclaim(c.first*PageSize, c.n*PageSize)
		if err != nil || zeros != c.zeros {
			t.Errorf("pages %d+%d: zeros %v, error %v", c.first, c.n, zeros, err)
		}
		b, err := m.Slice(c.first*PageSize, c.n*PageSize)
		if err != nil {
			t.Fatal(err)
		}
		if found := bytes.Count(b, []byte{0}) == len(b); found != c.zeros {
			t.Errorf("pages %d+%d: all zero is %v", c.first, c.n, found)
		}
		if bytes.Contains(b, []byte{1}) {
			t.Errorf("pages %d+%d: what was written is still there", c.first, c.n)
		}
	}
}
