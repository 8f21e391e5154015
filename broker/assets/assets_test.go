package assets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thaw/api"
)

func put(t *testing.T, b []byte) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(p, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func erofs(blocks uint32, size int) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b[erofsSuper:], erofsMagic)
	b[erofsSuper+erofsBits] = 12
	binary.LittleEndian.PutUint32(b[erofsSuper+erofsBlocks:], blocks)
	return b
}

func TestRefusedAssets(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	arm := append([]byte(nil), self...)
	binary.LittleEndian.PutUint16(arm[18:], 183) // e_machine: EM_AARCH64
	for name, tc := range map[string]struct {
		path  string
		check func(*os.File) error
		code  api.Code
		cause string
	}{
		"missing":            {"/nowhere", checkKernel, api.CodeAssetMissing, ""},
		"a directory":        {t.TempDir(), checkKernel, api.CodeAssetInvalid, "regular"},
		"empty kernel":       {put(t, nil), checkKernel, api.CodeAssetInvalid, "too short"},
		"no kernel":          {put(t, make([]byte, 4096)), checkKernel, api.CodeAssetInvalid, "neither"},
		"other architecture": {put(t, arm), checkKernel, api.CodeAssetInvalid, "AARCH64"},
		"truncated kernel":   {put(t, self[:len(self)/8]), checkKernel, api.CodeAssetInvalid, ""},
		"short image":        {put(t, make([]byte, 100)), checkImage, api.CodeAssetInvalid, "truncated"},
		"no image":           {put(t, make([]byte, 8192)), checkImage, api.CodeAssetInvalid, "not an EROFS"},
		"truncated image":    {put(t, erofs(100, 8192)), checkImage, api.CodeAssetInvalid, "8192 of 409600"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open("thing", tc.path, "make thing", tc.check)
			var e *api.Error
			if !errors.As(err, &e) || e.Code != tc.code || e.Remedy == "" || !strings.Contains(e.Error(), tc.cause) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestAcceptedAssets(t *testing.T) {
	bz := make([]byte, 0x300)
	copy(bz[0x202:], "HdrS")
	for name, tc := range map[string]struct {
		path  string
		check func(*os.File) error
	}{
		"elf": {"/proc/self/exe", checkKernel}, "bzImage": {put(t, bz), checkKernel}, "image": {put(t, erofs(2, 8192)), checkImage},
	} {
		f, err := open(name, tc.path, "", tc.check)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f.Close()
	}
}

func TestPublish(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, size := range []int{8192, 12288} { // the second replaces the first
		if err := Publish(ImageName("python"), put(t, erofs(1, size))); err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Kernel: "tuned"})
		if err != nil {
			t.Fatal(err)
		}
		kernel, images := s.Describe([]string{"python", "node"})
		if kernel.OK || kernel.Name != "tuned" || kernel.Error == "" || !images["python"].OK || images["node"].OK {
			t.Errorf("kernel %+v, images %+v", kernel, images)
		}
		f, err := s.Image("python")
		if err != nil {
			t.Fatal(err)
		}
		if st, _ := f.Stat(); st.Size() != int64(size) {
			t.Errorf("%d bytes, want %d", st.Size(), size)
		}
		f.Close()
	}
}

// The environment is that of the manifest as it is now, and the caller's own.
func TestEnv(t *testing.T) {
	dir := t.TempDir()
	s, err := New(Config{Kernel: "tuned", Images: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ImageName("python")), erofs(1, 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	if env, err := s.Env("python"); env != nil || err != nil {
		t.Errorf("without a manifest: %v, %v", env, err)
	}
	for _, want := range []string{"[A=1 B=2]", "[A=1 B=2]", "[A=3]"} {
		manifest := `{"env": {"B": "2", "A": "1"}}`
		if want == "[A=3]" {
			manifest = `{"env": {"A": "3"}}`
		}
		if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(manifest), 0o644); err != nil {
			t.Fatal(err)
		}
		env, err := s.Env("python")
		if err != nil || fmt.Sprint(env) != want {
			t.Fatalf("got %v, %v; want %s", env, err, want)
		}
		env[0] = "changed"
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Env("python"); err == nil {
		t.Error("a manifest that is none is taken")
	}
}

func FuzzCheckImage(f *testing.F) {
	f.Add(erofs(1, 4096))
	f.Add([]byte("\x7fELF"))
	path := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		_, _ = checkImage(file), checkKernel(file)
	})
}
