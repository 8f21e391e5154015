package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	sha1st = strings.Repeat("1a", 32)
	sha2nd = strings.Repeat("2b", 32)
	sri    = "sha512-" + strings.Repeat("A", 86) + "=="
)

func TestEmbeddedLock(t *testing.T) {
	l, err := loadLocks("")
	if err != nil {
		t.Fatal(err)
	}
	r, err := loadRecipe()
	if err != nil {
		t.Fatal(err)
	}
	if l.debian.Suite != r.Suite {
		t.Errorf("lock is for suite %q, recipe for %q", l.debian.Suite, r.Suite)
	}
	locked := map[string]bool{}
	for component := range r.Debian {
		if len(l.debian.Components[component]) == 0 {
			t.Errorf("component %s is not locked", component)
		}
		for _, p := range l.debian.Components[component] {
			locked[p.Name] = true
		}
	}
	for _, name := range r.packages([]string{componentBase, componentPython, componentPythonDebian, componentNodeDebian}) {
		if !locked[name] {
			t.Errorf("Debian package %s is not locked", name)
		}
	}
	for _, p := range l.python {
		locked[p.name] = true
	}
	for _, p := range l.npm {
		locked[p.name] = true
	}
	for _, name := range append(r.Python.Requirements, nodePackage, "lodash", "zod") {
		if !locked[name] {
			t.Errorf("package %s is not locked", name)
		}
	}
}

func TestParsePythonLock(t *testing.T) {
	tests := []struct {
		name, text string
		want       []pythonPin
		bad        bool
	}{
		{"empty", "# nothing\n\n", nil, false},
		{"two", "numpy==2.4.6 --hash=sha256:" + sha1st + "\npython-dateutil==4.0.0.post1 --hash=sha256:" + sha2nd + "\n",
			[]pythonPin{{"numpy", "2.4.6", sha1st}, {"python-dateutil", "4.0.0.post1", sha2nd}}, false},
		{"no hash", "numpy==2.4.6\n", nil, true},
		{"short hash", "numpy==2.4.6 --hash=sha256:12\n", nil, true},
		{"range", "numpy>=2 --hash=sha256:" + sha1st, nil, true},
		{"option", "--index-url http://example.test/\n", nil, true},
		{"address", "numpy @ http://example.test/x.whl --hash=sha256:" + sha1st, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parsePythonLock([]byte(tt.text))
			if errors.Is(err, ErrLock) != tt.bad || (err != nil) != tt.bad {
				t.Fatalf("err = %v, want malformed: %v", err, tt.bad)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(pythonPin{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseNPMLock(t *testing.T) {
	entry := func(where string) string {
		return `{"lockfileVersion":3,"packages":{"":{},"` + where + `":{"version":"1.0.0","integrity":"` + sri + `","license":"MIT"}}}`
	}
	tests := []struct {
		name, text string
		want       []npmPin
		bad        bool
	}{
		{"plain", entry("node_modules/zod"), []npmPin{{"node_modules/zod", "zod", "1.0.0", sri, "MIT"}}, false},
		{"scoped and nested", entry("node_modules/@a/b/node_modules/c"), []npmPin{{"node_modules/@a/b/node_modules/c", "c", "1.0.0", sri, "MIT"}}, false},
		{"scoped", entry("node_modules/@a/b"), []npmPin{{"node_modules/@a/b", "@a/b", "1.0.0", sri, "MIT"}}, false},
		{"outside", entry("node_modules/../../etc"), nil, true},
		{"absolute", entry("/etc"), nil, true},
		{"no integrity", `{"lockfileVersion":3,"packages":{"node_modules/zod":{"version":"1.0.0"}}}`, nil, true},
		{"old version", `{"lockfileVersion":1,"packages":{}}`, nil, true},
		{"not JSON", `packages:`, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseNPMLock([]byte(tt.text))
			if errors.Is(err, ErrLock) != tt.bad || (err != nil) != tt.bad {
				t.Fatalf("err = %v, want malformed: %v", err, tt.bad)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(npmPin{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDrift(t *testing.T) {
	lock := debianLock{Components: map[string][]debianPin{
		"base":   {{"bash", "5.2", "amd64", sha1st}, {"libc6", "2.41", "amd64", sha1st}},
		"python": {{"python3", "3.13", "amd64", sha1st}},
	}}
	same := lock.pins([]string{"base", "python"})
	tests := []struct {
		name       string
		components []string
		installed  []debianPin
		want       []Drift
	}{
		{"matched", []string{"base", "python"}, same, nil},
		{"newer", []string{"base"}, []debianPin{{"bash", "5.3", "amd64", sha2nd}, same[1]},
			[]Drift{{Package: "bash", Locked: "5.2", Actual: "5.3"}}},
		{"other bytes", []string{"base"}, []debianPin{{"bash", "5.2", "amd64", sha2nd}, same[1]},
			[]Drift{{Package: "bash", Locked: "5.2", Actual: "5.2", SHA256: true}}},
		{"new and gone", []string{"base"}, []debianPin{same[0], {"libc7", "3", "amd64", sha1st}},
			[]Drift{{Package: "libc6", Locked: "2.41"}, {Package: "libc7", Actual: "3"}}},
		{"component not asked for", []string{"base"}, same, []Drift{{Package: "python3", Actual: "3.13"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, lock.drift(tt.components, tt.installed)); diff != "" {
				t.Error(diff)
			}
		})
	}
	err := error(&DriftError{[]Drift{{Package: "bash", Locked: "5.2", Actual: "5.3"}}})
	if !errors.Is(err, ErrLockDrift) || !strings.Contains(err.Error(), "bash 5.2 → 5.3") || !strings.Contains(err.Error(), "thaw image lock") {
		t.Errorf("error %q does not name package and remedy", err)
	}
}

func TestLockDir(t *testing.T) {
	dir := t.TempDir()
	if _, err := loadLocks(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("no files: %v", err)
	}
	for name, content := range map[string]string{
		debianLockFile: `{"suite":"trixie","components":{"base":[{"name":"bash"}]}}`,
		pythonLockFile: "", npmLockFile: `{"lockfileVersion":3,"packages":{}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := loadLocks(dir); !errors.Is(err, ErrLock) {
		t.Fatalf("Debian package without digest: %v, want %v", err, ErrLock)
	}
}

func FuzzLocks(f *testing.F) {
	f.Add([]byte("numpy==1 --hash=sha256:" + sha1st + "\n"))
	f.Add([]byte(`{"lockfileVersion":3,"packages":{"node_modules/a":{"version":"1","integrity":"` + sri + `"}}}`))
	f.Add([]byte(`{"suite":"trixie","components":{"base":[{"name":"a","version":"1","architecture":"all","sha256":"` + sha1st + `"}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		pins, _ := parseNPMLock(raw)
		for _, p := range pins {
			if strings.Contains(p.path, "..") && !filepath.IsLocal(p.path) {
				t.Errorf("path %q leaves the project", p.path)
			}
		}
		_, _ = parsePythonLock(raw)
		_, _ = parseDebianLock(raw)
	})
}
