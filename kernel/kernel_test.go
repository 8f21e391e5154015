package kernel

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"thaw/internal/hostcmd"
)

// fakeKernel puts a kernel of a few bytes into a cache of the test's own.
func fakeKernel(t *testing.T) *Kernel {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	k, err := get(t.Context(), strings.Repeat("ab", 32), func(_ context.Context, dir string) (*Manifest, error) {
		mods := filepath.Join(dir, dirModules)
		for _, err := range []error{
			os.Mkdir(mods, 0o755),
			os.WriteFile(filepath.Join(dir, fileKernel), []byte("kernel"), 0o644),
			os.WriteFile(filepath.Join(dir, fileConfig), []byte("CONFIG_X=y\n"), 0o644),
			os.WriteFile(filepath.Join(mods, "vsock.ko"), []byte("module"), 0o644),
		} {
			if err != nil {
				return nil, err
			}
		}
		return &Manifest{
			Name: NameStock, Version: "6.12.1-test",
			Modules: []Module{{Name: "vsock", File: "vsock.ko", SHA256: digestBytes([]byte("module")), Size: 6}},
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKernelFromCache(t *testing.T) {
	k := fakeKernel(t)
	if k.Manifest.Size != 6 || k.Manifest.SHA256 != digestBytes([]byte("kernel")) {
		t.Errorf("manifest has %d bytes, %s", k.Manifest.Size, k.Manifest.SHA256)
	}
	if k.Manifest.ConfigSHA256 != digestBytes([]byte("CONFIG_X=y\n")) {
		t.Errorf("manifest has configuration %s", k.Manifest.ConfigSHA256)
	}
	if want := []string{filepath.Join(k.ModulesDir, "vsock.ko")}; !cmp.Equal(k.ModulePaths(), want) {
		t.Errorf("modules %v, want %v", k.ModulePaths(), want)
	}
	again, err := open(filepath.Dir(k.Path))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(k, again); d != "" {
		t.Error(d)
	}
	if err := k.Verify(); err != nil {
		t.Error(err)
	}
}

func TestDamageIsNoticed(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(k *Kernel) error
		open   bool // noticed without reading the kernel
	}{
		{"kernel cut off", func(k *Kernel) error { return os.Truncate(k.Path, 3) }, true},
		{"kernel gone", func(k *Kernel) error { return os.Remove(k.Path) }, true},
		{"manifest gone", func(k *Kernel) error { return os.Remove(filepath.Join(filepath.Dir(k.Path), fileManifest)) }, true},
		{"manifest not JSON", func(k *Kernel) error {
			return os.WriteFile(filepath.Join(filepath.Dir(k.Path), fileManifest), []byte("{"), 0o644)
		}, true},
		{"kernel changed", func(k *Kernel) error { return os.WriteFile(k.Path, []byte("Kernel"), 0o644) }, false},
		{"module changed", func(k *Kernel) error { return os.WriteFile(k.ModulePaths()[0], []byte("Module"), 0o644) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := fakeKernel(t)
			if err := c.damage(k); err != nil {
				t.Fatal(err)
			}
			_, err := open(filepath.Dir(k.Path))
			if !c.open {
				if err != nil {
					t.Fatal(err)
				}
				err = k.Verify()
			}
			if err == nil {
				t.Error("not noticed")
			}
		})
	}
}

func TestBoundedBuffer(t *testing.T) {
	b := boundedBuffer{limit: 1 << 10}
	_, err := run(t.Context(), hostcmd.Command{Argv: []string{"sh", "-c", "yes"}, Stdout: &b})
	if err == nil || b.buf.Len() > b.limit {
		t.Errorf("%d bytes, error %v", b.buf.Len(), err)
	}
}

func TestGuestTests(t *testing.T) {
	for _, tool := range compileTools {
		if !tool.present() {
			t.Skipf("no %s to compile with", tool.pkg)
		}
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, err := GuestTests(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Name())
		program, err := elf.Open(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		defer program.Close()
		if libs, _ := program.ImportedLibraries(); len(libs) > 0 || program.Type != elf.ET_EXEC {
			t.Errorf("%s is not static: %v, needs %v", f.Name(), program.Type, libs)
		}
	}
	names, err := GuestTestNames()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(names, got); d != "" {
		t.Error(d)
	}
	again, err := GuestTests(t.Context(), writerFunc(func(p []byte) (int, error) {
		t.Errorf("second call says %q", p)
		return len(p), nil
	}))
	if err != nil || again != dir {
		t.Errorf("second call: %q, %v", again, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
