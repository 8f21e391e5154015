package rootfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadDeb822(t *testing.T) {
	text := "Package: a\nVersion: 1:2-3\nDescription: long\n more: no field\n\n\n# comment\nPackage: b\nversion:\t4 \n"
	var got []map[string]string
	err := readDeb822(strings.NewReader(text), []string{"package", "version", "more"}, func(s map[string]string) error {
		got = append(got, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []map[string]string{{"package": "a", "version": "1:2-3"}, {"package": "b", "version": "4"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHostMirrors(t *testing.T) {
	list := filepath.Join(t.TempDir(), "debian.list")
	if err := os.WriteFile(list, []byte("# nearest first\nhttps://near.example.test/debian/\nhttps://far.example.test/debian/\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		files map[string]string
		want  mirrors
	}{
		{"nothing", nil, defaultMirrors},
		{"one line", map[string]string{"sources.list": "# deb http://old.example.test/debian bookworm main\n" +
			"deb [arch=amd64 signed-by=/k.gpg] http://m.example.test/debian/ bookworm main contrib\n" +
			"deb http://s.example.test/debian-security bookworm-security main\n"},
			mirrors{"http://m.example.test/debian", "http://s.example.test/debian-security"}},
		{"stanzas", map[string]string{"sources.list.d/debian.sources": "Types: deb deb-src\nURIs: https://m.example.test/debian\n" +
			"Suites: trixie trixie-updates\nComponents: main\n\nTypes: deb\nURIs: https://m.example.test/sec\nSuites: trixie-security\nComponents: main\n"},
			mirrors{"https://m.example.test/debian", "https://m.example.test/sec"}},
		{"third parties", map[string]string{
			"sources.list.d/a.list":    "deb https://other.example.test/linux/debian bookworm stable\ndeb https://pg.example.test/apt bookworm-pgdg main\n",
			"sources.list.d/b.sources": "Types: deb\nEnabled: no\nURIs: https://off.example.test/debian\nSuites: trixie\nComponents: main\n"},
			defaultMirrors},
		{"mirror list", map[string]string{"sources.list": "deb mirror+file:" + list + " trixie main\n"},
			mirrors{"https://near.example.test/debian", defaultMirrors.security}},
		{"local archive", map[string]string{"sources.list": "deb file:/srv/debian trixie main\n"}, defaultMirrors},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := hostMirrors(writeLayer(t, tt.files)); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func FuzzReadDeb822(f *testing.F) {
	f.Add("Package: a\nVersion: 1\n\nPackage: b\n")
	f.Add(" continued\n#\n:\n::\n")
	f.Fuzz(func(t *testing.T, text string) {
		_ = readDeb822(strings.NewReader(text), []string{"package", "version"}, func(s map[string]string) error {
			if len(s) == 0 || len(s) > 2 {
				t.Errorf("stanza with %d fields", len(s))
			}
			return nil
		})
	})
}

func FuzzMirrors(f *testing.F) {
	f.Add("deb [a=b] http://x.test/debian bookworm main\n", "Types: deb\nURIs: http://y.test\nSuites: trixie-security\nComponents: main\n")
	f.Fuzz(func(t *testing.T, list, stanzas string) {
		var m mirrors
		m.addOneLine([]byte(list))
		m.addDeb822([]byte(stanzas))
		for _, uri := range []string{m.main, m.security} {
			if uri != "" && !strings.HasPrefix(uri, "http") {
				t.Errorf("mirror %q", uri)
			}
		}
	})
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
