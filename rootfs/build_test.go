package rootfs

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"thaw/internal/hostcmd"
)

func TestPlans(t *testing.T) {
	tests := []struct {
		name string
		opts Options
		want []plan
	}{
		{"python", Options{}, []plan{{"python", SourcePyPI, ""}, {"python", SourceDebian, ""}}},
		{"node", Options{Node: SourceDebian}, []plan{{"node", "", SourceDebian}}},
		{"dual", Options{Python: SourcePyPI}, []plan{{"dual", SourcePyPI, SourceNPM}, {"dual", SourcePyPI, SourceDebian}}},
	}
	for _, tt := range tests {
		got, err := tt.opts.plans(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(plan{})); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
	if got := (plan{"dual", SourceDebian, SourceDebian}).components(); len(got) != 4 {
		t.Errorf("components %q, want all four", got)
	}
	if got := (plan{"node", "", SourceNPM}).components(); len(got) != 1 {
		t.Errorf("components %q, want base alone", got)
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if _, err := BuildWith(context.Background(), "perl", Options{}, nil); !errors.Is(err, ErrUnknownImage) {
		t.Errorf("err = %v, want %v", err, ErrUnknownImage)
	}
	for _, opts := range []Options{{Python: SourceNPM}, {Node: "source"}} {
		if _, err := BuildWith(context.Background(), "dual", opts, nil); err == nil {
			t.Errorf("options %+v were taken", opts)
		}
	}
}

func TestOptionsFromEnv(t *testing.T) {
	for name, value := range map[string]string{"THAW_IMAGE_LOCKED": "1", "THAW_PYTHON_SOURCE": "debian", "THAW_NODE_SOURCE": "npm", "THAW_IMAGE_LOCK_DIR": "/l"} {
		t.Setenv(name, value)
	}
	want := Options{Locked: true, Python: SourceDebian, Node: SourceNPM, LockDir: "/l"}
	if got := OptionsFromEnv(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// finishedImage writes an image of size bytes and a manifest into a folder.
func finishedImage(t *testing.T, m Manifest, size int64) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "image.erofs"), make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(filepath.Join(dir, "manifest.json"), m); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpen(t *testing.T) {
	drifted := Lock{Status: LockDrifted, Drift: []Drift{{Package: "bash", Locked: "1", Actual: "2"}}}
	tests := []struct {
		name   string
		m      Manifest
		size   int64
		locked bool
		want   error
		says   string
	}{
		{"whole", Manifest{Name: "python", Size: 5, Lock: Lock{Status: LockMatched}}, 5, true, nil, ""},
		{"truncated", Manifest{Name: "python", Size: 5}, 4, false, ErrDamaged, ""},
		{"drifted", Manifest{Name: "python", Size: 5, Lock: drifted}, 5, false, nil, "bash 1 → 2"},
		{"drifted, locked", Manifest{Name: "python", Size: 5, Lock: drifted}, 5, true, ErrLockDrift, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			b := &builder{opts: Options{Locked: tt.locked}, progress: newProgress(&out)}
			_, err := b.open(finishedImage(t, tt.m, tt.size))
			if !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
			if !strings.Contains(out.String(), tt.says) {
				t.Errorf("said %q, want %q in it", out.String(), tt.says)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		dir := finishedImage(t, Manifest{Name: "python"}, 0)
		if err := os.Remove(filepath.Join(dir, "image.erofs")); err != nil {
			t.Fatal(err)
		}
		b := &builder{progress: newProgress(nil)}
		if _, err := b.open(dir); !errors.Is(err, ErrDamaged) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("err = %v, want %v", err, ErrDamaged)
		}
	})
}

func TestCompose(t *testing.T) {
	b, err := newBuilder(Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	debian := writeLayer(t, map[string]string{"etc/passwd": "root:*:0:0::/root:/bin/sh\n", "etc/group": "root:*:0:\n", "usr/bin/python3": "ELF"})
	if err := os.Rename(debian, filepath.Join(dir, "tree")); err != nil {
		t.Fatal(err)
	}
	layers := []layer{{dir: dir, info: layerInfo{
		Packages: []Package{{Source: SourceDebian, Name: "bash", Version: "5"}, {Source: SourcePyPI, Name: "numpy", Version: "2"}},
		Versions: map[string]string{"debian": "13.1", "python": "3.13.5"},
	}}}
	p := plan{"dual", SourcePyPI, SourceNPM}
	m := b.manifest(p, layers)
	tr, err := b.compose(p, m, layers)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"etc/hostname":    "sandbox\n",
		"etc/resolv.conf": "",
		"etc/machine-id":  "",
		"etc/passwd":      "root:*:0:0::/root:/bin/sh\njob:*:10001:10001::/workspace:/bin/bash\n",
		"etc/group":       "root:*:0:\njob:*:10001:\n",
	} {
		if got, err := fs.ReadFile(tr, name); err != nil || string(got) != want {
			t.Errorf("%s = %q, %v; want %q", name, got, err, want)
		}
	}
	raw, err := fs.ReadFile(tr, "etc/thaw/image.json")
	if err != nil {
		t.Fatal(err)
	}
	var info guestInfo
	if err := json.Unmarshal(raw, &info); err != nil {
		t.Fatal(err)
	}
	if info.Python != "3.13.5" || info.Packages["numpy"] != "2" || info.Env["NODE_PATH"] == "" || info.User.UID != 10001 {
		t.Errorf("image.json: %s", raw)
	}
	if target, err := tr.ReadLink("node_modules"); target != moduleDir {
		t.Errorf("node_modules → %q, %v", target, err)
	}
	for _, name := range []string{"workspace", fontDir} {
		if n, err := tr.lookup("stat", name); err != nil || n.uid != 10001 || n.gid != 10001 {
			t.Errorf("%s is not the job's: %+v, %v", name, n, err)
		}
	}
}

func TestSBOM(t *testing.T) {
	m := Manifest{Name: "dual", SHA256: sha1st, Epoch: 1764374400, Packages: []Package{
		{Source: SourceDebian, Name: "libstdc++6", Version: "14.2.0-19+x", Architecture: "amd64", SHA256: sha1st},
		{Source: SourcePyPI, Name: "et_xmlfile", Version: "2.0.0", SHA256: sha2nd},
		{Source: SourceNPM, Name: "@a/b", Version: "1.0.0", Integrity: sri, License: "MIT"},
	}}
	doc := sbom(m)
	if len(doc.Packages) != 4 || len(doc.Relationships) != 4 {
		t.Fatalf("%d packages, %d relationships, want 4 each", len(doc.Packages), len(doc.Relationships))
	}
	wantPURL := []string{"pkg:deb/debian/libstdc++6@14.2.0-19+x?arch=amd64", "pkg:pypi/et-xmlfile@2.0.0", "pkg:npm/%40a/b@1.0.0"}
	for i, want := range wantPURL {
		if got := doc.Packages[i+1].ExternalRefs[0].Locator; got != want {
			t.Errorf("purl %q, want %q", got, want)
		}
	}
	if npm := doc.Packages[3]; npm.LicenseDeclared != "MIT" || npm.Checksums[0] != (spdxChecksum{"SHA512", strings.Repeat("0", 128)}) {
		t.Errorf("npm package: %+v", npm)
	}
	if doc.CreationInfo.Created != "2025-11-29T00:00:00Z" {
		t.Errorf("created %s", doc.CreationInfo.Created)
	}
}

func TestRegistryErrors(t *testing.T) {
	tests := []struct {
		name     string
		classify func(error) error
		output   string
		want     error // nil: the registry was not reached
	}{
		{"pip offline", pipError, "WARNING: Retrying … NewConnectionError: Failed to establish a new connection\nERROR: No matching distribution found for numpy==2.4.6", nil},
		{"pip no such version", pipError, "ERROR: No matching distribution found for numpy==9.9", ErrPackage},
		{"pip other bytes", pipError, "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. Examine them.\n    six==1.0 from https://x/six.whl (from -r python.txt (line 6)):", ErrDigest},
		{"npm offline", npmError, "npm error code ENOTFOUND", nil},
		{"npm no such version", npmError, "npm error code ETARGET\nnpm error notarget No matching version", ErrPackage},
		{"npm other bytes", npmError, "npm error code EINTEGRITY", ErrDigest},
		{"apt gone", debianError, "E: Failed to fetch http://x/y.deb  404  Not Found", ErrPackage},
		{"apt unknown", debianError, "E: Unable to locate package pythom3", ErrPackage},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			failed := &hostcmd.Error{Name: "tool", Output: tt.output, Err: errors.New("exit status 1")}
			err := tt.classify(failed)
			var unreached *unreachedError
			if errors.As(err, &unreached) != (tt.want == nil) || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out)
	var err error
	p.step(&err, "base: installing %d packages", 3)()
	err = errors.New("no")
	p.step(&err, "node: fetching")()
	got := out.String()
	if !strings.HasPrefix(got, "image: base: installing 3 packages\nimage: base: installing 3 packages: done in ") || !strings.HasSuffix(got, "image: node: fetching\n") {
		t.Errorf("said %q", got)
	}
}
