package boot

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

func TestCmdlineValue(t *testing.T) {
	const line = "console=ttyS0 thaw.workspace_bytes=5 quiet thaw.tmp_bytes= xthaw.a=1 thaw.workspace_bytes=7\n"
	for _, c := range []struct {
		key, want string
		ok        bool
	}{
		{"thaw.workspace_bytes", "7", true},
		{"thaw.tmp_bytes", "", true},
		{"thaw.a", "", false},
		{"quiet", "", false},
	} {
		if got, ok := cmdlineValue(line, c.key); got != c.want || ok != c.ok {
			t.Errorf("%s: %q, %v", c.key, got, ok)
		}
	}
}

func TestHasProjectQuota(t *testing.T) {
	disk := func(magic uint16, features uint32, size int) string {
		b := make([]byte, 1024+0x68)
		binary.LittleEndian.PutUint16(b[1024+0x38:], magic)
		binary.LittleEndian.PutUint32(b[1024+0x64:], features)
		path := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(path, b[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const whole = 1024 + 0x68
	for _, c := range []struct {
		name     string
		magic    uint16
		features uint32
		size     int
		want     bool
		err      string
	}{
		{"quota and project", 0xef53, 0x2100, whole, true, ""},
		{"others as well", 0xef53, 0x2173, whole, true, ""},
		{"project only", 0xef53, 0x2000, whole, false, ""},
		{"none", 0xef53, 0, whole, false, ""},
		{"no ext4", 0x1234, 0x2100, whole, false, "no ext4"},
		{"short disk", 0xef53, 0x2100, whole - 1, false, "unexpected EOF"},
	} {
		got, err := hasProjectQuota(disk(c.magic, c.features, c.size))
		if got != c.want || (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// The kernel's ABI: include/uapi/linux/fs.h and quota.h.
func TestLayouts(t *testing.T) {
	if n := unsafe.Sizeof(fsxattr{}); n != 28 {
		t.Errorf("struct fsxattr has %d bytes", n)
	}
	if n := unsafe.Sizeof(dqblk{}); n != 72 {
		t.Errorf("struct if_dqblk has %d bytes", n)
	}
	if n := unsafe.Offsetof(dqblk{}.Valid); n != 64 {
		t.Errorf("dqb_valid is at %d", n)
	}
}
