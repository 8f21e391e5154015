package rootfs

import (
	"archive/zip"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// zipEntry is one entry of a wheel made for a test.
type zipEntry struct {
	name string
	mode fs.FileMode
}

func writeWheel(t *testing.T, entries []zipEntry) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x-1-py3-none-any.whl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode)
		w, err := z.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.name)); err != nil && !h.FileInfo().IsDir() {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUnpackWheel(t *testing.T) {
	wheel := writeWheel(t, []zipEntry{
		{"x/__init__.py", 0o600},
		{"x/tool.so", 0o700},
		{"x/tests/__init__.py", 0o644},
		{"x/sub/tests/data/a.csv", 0o644},
		{"x/testing.py", 0o644},
		{"numpy/_core/tests/_natype.py", 0o644},
		{"numpy/_core/tests/test_api.py", 0o644},
		{"x-1.dist-info/METADATA", 0o644},
		{"x-1.data/purelib/y.py", 0o644},
		{"x-1.data/scripts/x", 0o755},
		{"x-1.data/data/share/man/x.1", 0o644},
	})
	site := t.TempDir()
	if err := unpackWheel(wheel, site); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := filepath.WalkDir(site, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(site, p)
		got = append(got, rel+" "+st.Mode().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"numpy/_core/tests/_natype.py -rw-r--r--",
		"x/__init__.py -rw-r--r--",
		"x/testing.py -rw-r--r--",
		"x/tool.so -rwxr-xr-x",
		"x-1.dist-info/METADATA -rw-r--r--",
		"y.py -rw-r--r--",
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func TestUnpackWheelRefuses(t *testing.T) {
	for name, e := range map[string]zipEntry{
		"above":         {"../evil.py", 0o644},
		"absolute":      {"/etc/evil", 0o644},
		"above in data": {"x-1.data/purelib/../../evil.py", 0o644},
		"link":          {"x/link", fs.ModeSymlink | 0o777},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			site := filepath.Join(outside, "site")
			if err := unpackWheel(writeWheel(t, []zipEntry{e}), site); err == nil {
				t.Error("unpacked")
			}
			if left, _ := filepath.Glob(filepath.Join(outside, "*")); len(left) != 0 {
				t.Errorf("left %q", left)
			}
		})
	}
	t.Run("twice", func(t *testing.T) {
		if err := unpackWheel(writeWheel(t, []zipEntry{{"a.py", 0o644}, {"a.py", 0o644}}), t.TempDir()); err == nil {
			t.Error("a name twice was unpacked")
		}
	})
	t.Run("no archive", func(t *testing.T) {
		if err := unpackWheel(writeFile(t, "x.whl", []byte("PK")), t.TempDir()); err == nil {
			t.Error("unpacked")
		}
	})
}

func FuzzWheelTarget(f *testing.F) {
	for _, name := range []string{"x/a.py", "x-1.data/purelib/a.py", "../a", "x/../../a", "/a", "a//b", ".data/platlib/"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		name, ok := wheelTarget(entry)
		if ok && fs.ValidPath(name) && name != "." && !filepath.IsLocal(name) {
			t.Errorf("entry %q goes to %q, outside", entry, name)
		}
	})
}
