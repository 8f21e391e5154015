package lab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPickMirror(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"nothing":       {"", ""},
		"debian":        {"http://m.example/debian/ bookworm\n", "http://m.example/debian"},
		"below a path":  {"https://m.example/mirrors/debian trixie\n", "https://m.example/mirrors/debian"},
		"security":      {"http://m.example/debian-security/ bookworm-security\nhttp://n.example/debian/ bookworm\n", "http://n.example/debian"},
		"ubuntu":        {"http://m.example/ubuntu/ noble\n", ""},
		"vendor":        {"https://vendor.example/apt bookworm\n", ""},
		"vendor debian": {"https://vendor.example/debian nodistro\n", ""},
		"list file":     {"mirror+file:/etc/apt/mirrors/debian.list bookworm\n", ""},
	} {
		if got := pickMirror([]byte(c.in)); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestPickOptions(t *testing.T) {
	got := pickOptions([]byte(`Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://p.example:3142";
Acquire::https::CAInfo "/etc/ca.pem";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Packages::MetaKey "$(COMPONENT)/Packages";
Acquire::http::Pipeline-Depth
`))
	want := []string{
		`Acquire::http::Proxy "http://p.example:3142"`,
		`Acquire::https::CAInfo "/etc/ca.pem"`,
		`Acquire::Check-Valid-Until "false"`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func FuzzPickMirror(f *testing.F) {
	f.Add([]byte("http://m.example/debian/ bookworm\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		pickMirror(in)
		pickOptions(in)
	})
}
