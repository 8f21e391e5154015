package kernel

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testRelease = "6.12.1-test"

// fakeModule is a module file that says the given things about itself.
func fakeModule(t *testing.T, name, depends, release string) []byte {
	t.Helper()
	modinfo := []byte("license=GPL\x00name=" + name + "\x00depends=" + depends + "\x00vermagic=" + release + " SMP \x00")
	names := []byte("\x00.modinfo\x00.shstrtab\x00")
	const headers = 64
	at := uint64(headers + 3*64)
	var b bytes.Buffer
	for _, v := range []any{
		elf.Header64{
			Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
			Ehsize: headers, Shoff: headers, Shentsize: 64, Shnum: 3, Shstrndx: 2,
		},
		elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: at, Size: uint64(len(modinfo))},
		elf.Section64{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: at + uint64(len(modinfo)), Size: uint64(len(names))},
		modinfo, names,
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// fakePackage makes the modules folder of a kernel package: what guestModules
// names, one compressed, one built in, and one that nobody wants.
func fakePackage(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "kernel", "drivers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(file string, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	depends := map[string]string{
		"virtio_net":                 "net_failover",
		"vmw_vsock_virtio_transport": "vmw_vsock_virtio_transport_common,vsock",
	}
	for _, name := range append([]string{"vmw_vsock_virtio_transport_common", "unwanted"}, guestModules...) {
		if name != "ext4" { // built in
			put(name+".ko", fakeModule(t, name, depends[name], testRelease))
		}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(fakeModule(t, "net_failover", "", testRelease)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put("net-failover.ko.gz", packed.Bytes())
	if err := os.WriteFile(filepath.Join(root, "modules.builtin"), []byte("kernel/fs/ext4/ext4.ko\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestPickModules(t *testing.T) {
	dir := filepath.Join(t.TempDir(), dirModules)
	modules, err := pickModules(t.Context(), fakePackage(t), testRelease, dir)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	var files []string
	for i, m := range modules {
		at[m.Name] = i
		files = append(files, m.File)
		ko, err := os.ReadFile(filepath.Join(dir, m.File))
		if err != nil {
			t.Fatal(err)
		}
		if digestBytes(ko) != m.SHA256 || int64(len(ko)) != m.Size || !bytes.HasPrefix(ko, []byte(elf.ELFMAG)) {
			t.Errorf("%s is not what the manifest says", m.File)
		}
	}
	if len(modules) != len(guestModules)+1 { // two dependencies more, ext4 less
		t.Errorf("%d modules", len(modules))
	}
	if at["net_failover"] > at["virtio_net"] || at["vmw_vsock_virtio_transport_common"] > at["vmw_vsock_virtio_transport"] {
		t.Errorf("order %v", files)
	}
	order, err := os.ReadFile(filepath.Join(dir, fileOrder))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(files, strings.Fields(string(order))); d != "" {
		t.Error(d)
	}
}

func TestPickModulesRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string) error
		want   string
	}{
		{"missing module", func(_ *testing.T, dir string) error { return os.Remove(filepath.Join(dir, "erofs.ko")) }, "no module erofs"},
		{"another kernel's", func(t *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, "erofs.ko"), fakeModule(t, "erofs", "", "6.1.0"), 0o644)
		}, "is for kernel"},
		{"another name", func(t *testing.T, dir string) error {
			return os.WriteFile(filepath.Join(dir, "erofs.ko"), fakeModule(t, "other", "", testRelease), 0o644)
		}, "calls itself"},
		{"damaged", func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, "erofs.ko"), 10) }, "erofs.ko"},
		{"damaged archive", func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, "net-failover.ko.gz"), 30) }, "unpack"},
		{"unknown compression", func(_ *testing.T, dir string) error {
			return os.Rename(filepath.Join(dir, "erofs.ko"), filepath.Join(dir, "erofs.ko.lzh"))
		}, "unknown compression"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fakePackage(t)
			if err := c.change(t, filepath.Join(root, "kernel/drivers")); err != nil {
				t.Fatal(err)
			}
			_, err := pickModules(t.Context(), root, testRelease, filepath.Join(t.TempDir(), dirModules))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}
