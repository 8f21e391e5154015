package kernel

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testSHA = "e849faf31ca3555757f3a8877cb01af92122f744f75d1f3102734651c4e14703"

func TestParseRecords(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []debRecord
	}{
		{"nothing", "", nil},
		{"one", "Package: a\nVersion: 1:2~3\nSHA256: " + testSHA + "\n", []debRecord{{"a", "1:2~3", testSHA}}},
		{
			"two, with continuation lines",
			"Package: a\nDescription: x\n Version: 9\nVersion: 1\nSHA256: " + testSHA + "\n\n\n" +
				"Package: b\nSHA256: " + strings.ToUpper(testSHA) + "\nVersion: 2",
			[]debRecord{{"a", "1", testSHA}, {"b", "2", testSHA}},
		},
		{"installed only", "Package: a\nStatus: install ok installed\nVersion: 1\n", nil},
		{"bad digest", "Package: a\nVersion: 1\nSHA256: xyz\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, parseRecords(c.text)); d != "" {
				t.Error(d)
			}
		})
	}
}

func FuzzParseRecords(f *testing.F) {
	f.Add("Package: a\nVersion: 1\nSHA256: " + testSHA + "\n\nPackage: b\n")
	f.Add(": \n\n:\n x")
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range parseRecords(text) {
			if r.Package == "" || r.Version == "" || !isHex(r.SHA256, 64) {
				t.Errorf("record %+v", r)
			}
		}
	})
}

func TestNewest(t *testing.T) {
	if _, err := output(t.Context(), "dpkg", "--version"); err != nil {
		t.Skip("no dpkg to compare versions with")
	}
	var records []debRecord
	for _, v := range []string{"6.12.9-1~deb12u1", "6.12.117-1~deb12u1", "6.12.107-1~deb12u1", "6.12.117-1~bpo12+1"} {
		records = append(records, debRecord{Package: "p" + v, Version: v})
	}
	got, err := newest(t.Context(), records)
	if err != nil || got.Version != "6.12.117-1~deb12u1" {
		t.Errorf("newest is %v, %v", got, err)
	}
}

func TestStockName(t *testing.T) {
	for name, want := range map[string]bool{
		"linux-image-6.12.117+deb12-cloud-amd64-unsigned": true,
		"linux-image-6.12.9+bpo-cloud-amd64-unsigned":     true,
		"linux-image-6.12.48+deb13-cloud-amd64-unsigned":  true,
		"linux-image-6.12.117+deb12-cloud-amd64":          false,
		"linux-image-6.12.117+deb12-cloud-amd64-dbg":      false,
		"linux-image-6.12.117+deb12-amd64-unsigned":       false,
		"linux-image-6.12.117+deb12-rt-amd64-unsigned":    false,
		"linux-image-6.120.1-cloud-amd64-unsigned":        false,
		"linux-image-6.1.0-50-cloud-amd64-unsigned":       false,
		"linux-image-6.12-cloud-amd64":                    false,
	} {
		if got := stockName.MatchString(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNewSource(t *testing.T) {
	const sum = "045921f9a24d5f136b133883b49797a5"
	list := "ac2ed33a9ead42586d402b3c5afa7af3  usr/share/doc/x\n" + sum + "  " + sourceArchive + "\n"
	s, err := newSource("6.12.1-1", "/somewhere", list)
	if err != nil {
		t.Fatal(err)
	}
	want := Package{Name: sourcePackage, Version: "6.12.1-1", Digest: "md5:" + sum}
	if s.pkg != want || s.md5 != sum || s.archive != "/somewhere" {
		t.Errorf("source %+v", s)
	}
	for _, bad := range []string{"", "zz  " + sourceArchive, sum + "  usr/src/other.tar.xz"} {
		if _, err := newSource("1", "/x", bad); err == nil {
			t.Errorf("digests %q are accepted", bad)
		}
	}
}

func TestUnpackRefusesDamage(t *testing.T) {
	archive := t.TempDir() + "/a.tar.xz"
	if err := os.WriteFile(archive, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := &source{archive: archive, md5: "045921f9a24d5f136b133883b49797a5"}
	if err := s.unpack(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("error %v", err)
	}
}

func TestWithLists(t *testing.T) {
	missing := MissingError{What: "package x", Remedy: "get it"}
	other := errors.New("disk full")
	for _, c := range []struct {
		name string
		err  error
	}{{"found", nil}, {"another failure", other}, {"context", context.Canceled}} {
		t.Run(c.name, func(t *testing.T) {
			calls := 0
			_, err := withLists(t.Context(), io.Discard, missing, func() (int, error) {
				calls++
				return 1, c.err
			})
			if !errors.Is(err, c.err) || calls != 1 {
				t.Errorf("error %v after %d calls: newer lists would not help", err, calls)
			}
		})
	}
}

func TestMissingError(t *testing.T) {
	cause := errors.New("404")
	err := error(&MissingError{What: "package x", Remedy: "install it", Err: cause})
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "install it") {
		t.Errorf("error %v", err)
	}
}

// TestMissingTools: with nothing on the PATH each kernel fails at once, by what
// is missing, and without touching the machine.
func TestMissingTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for name, make := range map[string]func(context.Context, io.Writer) (*Kernel, error){NameTuned: Tuned, NameStock: Stock} {
		_, err := make(t.Context(), io.Discard)
		var missing *MissingError
		if !errors.As(err, &missing) || missing.What != "apt-get" || missing.Remedy == "" {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
