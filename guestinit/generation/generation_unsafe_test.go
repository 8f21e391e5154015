package generation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

func TestPoolInfoLayout(t *testing.T) {
	var p poolInfo
	if unsafe.Offsetof(p.size) != 4 || unsafe.Offsetof(p.buf) != 8 || unsafe.Sizeof(p) != 8+agentproto.SeedSize {
		t.Errorf("struct rand_pool_info is laid out wrong: %d, %d, %d", unsafe.Offsetof(p.size), unsafe.Offsetof(p.buf), unsafe.Sizeof(p))
	}
}

// Readers find a whole number at any time.
func TestNumberIsAtomic(t *testing.T) {
	dir := t.TempDir()
	f, err := openFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	read := func() (uint64, error) {
		b, err := os.ReadFile(filepath.Join(dir, numberFile))
		if err != nil {
			return 0, err
		}
		if len(b) != numberWidth || b[numberWidth-1] != '\n' {
			return 0, fmt.Errorf("file is %q", b)
		}
		return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	}
	if n, err := read(); n != 0 || err != nil {
		t.Errorf("at first it is %d, %v", n, err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for last := uint64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				n, err := read()
				// A reader that is not frozen may have opened the file that is
				// the spare by now, and be one ahead of the published number.
				if err != nil || n+1 < last {
					t.Errorf("%d after %d, %v", n, last, err)
					return
				}
				last = n
			}
		})
	}
	for i := range uint64(2000) {
		if err := f.setNumber(1<<63 + i); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if n, err := read(); n != 1<<63+1999 || err != nil {
		t.Errorf("at last it is %d, %v", n, err)
	}
	info, err := os.Stat(filepath.Join(dir, numberFile))
	if err != nil || info.Mode() != 0o444 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestMachineID(t *testing.T) {
	dir := t.TempDir()
	f, err := openFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	for _, id := range []string{"0123456789abcdef", "\x00\xff3456789abcdef\n"} {
		if err := f.setMachineID([]byte(id)); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, machineFile))
		if want := fmt.Sprintf("%x\n", id); err != nil || string(b) != want {
			t.Errorf("file is %q, want %q; %v", b, want, err)
		}
	}
}

func TestNetworkUp(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags map[string]string
		want  bool
	}{
		{"none", map[string]string{"lo": "0x9\n"}, false},
		{"down", map[string]string{"lo": "0x9\n", "eth0": "0x1002\n"}, false},
		{"up", map[string]string{"lo": "0x9\n", "eth0": "0x1003\n"}, true},
		{"second up", map[string]string{"eth0": "0x1002\n", "eth1": "0x1003\n"}, true},
		{"not a number", map[string]string{"eth0": "up\n"}, true},
	} {
		dir := t.TempDir()
		for name, flags := range c.flags {
			if err := errors.Join(os.Mkdir(filepath.Join(dir, name), 0o755),
				os.WriteFile(filepath.Join(dir, name, "flags"), []byte(flags), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		r := new(Renewer)
		if err := r.findInterfaces(dir); err != nil {
			t.Fatal(err)
		}
		if got := r.networkUp(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		for _, f := range r.flags {
			f.Close()
		}
	}
}

func TestNoDirectory(t *testing.T) {
	if _, err := New(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}

// Where the kernel refuses, the generation fails, at its first step.
func TestRefused(t *testing.T) {
	r, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.random.Close(); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	r.random = null
	if _, err := r.Renew(agentproto.Generation{Number: 1, Seed: make([]byte, agentproto.SeedSize)}); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("error is %v", err)
	}
}
