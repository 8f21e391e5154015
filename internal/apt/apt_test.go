package apt

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadStanzas(t *testing.T) {
	text := "Package: a\nVersion: 1:2-3\nDescription: long\n more: no field\n\n\n# comment\nPackage: b\nversion:\t4 \n"
	var got []map[string]string
	err := ReadStanzas(strings.NewReader(text), []string{"package", "version", "more"}, func(s map[string]string) error {
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
		want  Mirrors
	}{
		{"nothing", nil, defaults},
		{"one line", map[string]string{"sources.list": "# deb http://old.example.test/debian bookworm main\n" +
			"deb [arch=amd64 signed-by=/k.gpg] http://m.example.test/debian/ bookworm main contrib\n" +
			"deb http://s.example.test/debian-security bookworm-security main\n"},
			Mirrors{"http://m.example.test/debian", "http://s.example.test/debian-security"}},
		{"stanzas", map[string]string{"sources.list.d/debian.sources": "Types: deb deb-src\nURIs: https://m.example.test/debian\n" +
			"Suites: trixie trixie-updates\nComponents: main\n\nTypes: deb\nURIs: https://m.example.test/sec\nSuites: trixie-security\nComponents: main\n"},
			Mirrors{"https://m.example.test/debian", "https://m.example.test/sec"}},
		{"third parties", map[string]string{
			"sources.list.d/a.list":    "deb https://other.example.test/linux/debian bookworm stable\ndeb https://pg.example.test/apt bookworm-pgdg main\n",
			"sources.list.d/b.sources": "Types: deb\nEnabled: no\nURIs: https://off.example.test/debian\nSuites: trixie\nComponents: main\n"},
			defaults},
		{"mirror list", map[string]string{"sources.list": "deb mirror+file:" + list + " trixie main\n"},
			Mirrors{"https://near.example.test/debian", defaults.Security}},
		{"local archive", map[string]string{"sources.list": "deb file:/srv/debian trixie main\n"}, defaults},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := HostMirrors(writeFiles(t, tt.files)); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func FuzzReadStanzas(f *testing.F) {
	f.Add("Package: a\nVersion: 1\n\nPackage: b\n")
	f.Add(" continued\n#\n:\n::\n")
	f.Fuzz(func(t *testing.T, text string) {
		_ = ReadStanzas(strings.NewReader(text), []string{"package", "version"}, func(s map[string]string) error {
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
		var m Mirrors
		m.addOneLine([]byte(list))
		m.addDeb822([]byte(stanzas))
		for _, uri := range []string{m.Main, m.Security} {
			if uri != "" && !strings.HasPrefix(uri, "http") {
				t.Errorf("mirror %q", uri)
			}
		}
	})
}

func TestPickOptions(t *testing.T) {
	got := pickOptions(`Acquire::http::Proxy "http://p.example:3142"
Acquire::https::CAInfo "/etc/ca.pem"
Acquire::Check-Valid-Until "false"
Acquire::Languages:: "none"
Acquire::IndexTargets::deb::Packages::MetaKey "$(COMPONENT)/Packages"
Acquire::Retries "3"
`)
	want := []string{
		`Acquire::http::Proxy "http://p.example:3142"`,
		`Acquire::https::CAInfo "/etc/ca.pem"`,
		`Acquire::Check-Valid-Until "false"`,
		`Acquire::Retries "3"`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// writeFiles makes a folder with files of the given content.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
