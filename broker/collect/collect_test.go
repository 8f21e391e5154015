package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hostile is a tree whose listing and contents need not agree.
type hostile struct {
	files   []File
	content map[string]string
	more    bool
}

func (h hostile) List(context.Context, int) ([]File, bool, error) { return h.files, h.more, nil }

func (h hostile) Read(_ context.Context, path string, w io.Writer, _ int64) error {
	c, ok := h.content[path]
	if !ok {
		return errors.New("no such\x1b file")
	}
	_, err := io.Copy(w, strings.NewReader(c))
	return err
}

func reg(path string, size int64) File {
	return File{Path: path, Mode: unix.S_IFREG | 0o644, Size: size, Links: 1}
}

func reasons(o *Outcome) map[string]string {
	m := map[string]string{}
	for _, r := range o.Rejected {
		m[r.Path] = r.Reason
	}
	return m
}

func TestHostileTree(t *testing.T) {
	link := File{Path: "link", Mode: unix.S_IFLNK | 0o777, Size: 4, Links: 1}
	hard := reg("hard", 4)
	hard.Links = 2
	tree := hostile{
		files: []File{
			reg("b.txt", 5), reg("a/ok.txt", 2), {Path: "a", Mode: unix.S_IFDIR | 0o755, Links: 2}, link, hard,
			{Path: "fifo", Mode: unix.S_IFIFO, Links: 1}, {Path: "sock", Mode: unix.S_IFSOCK, Links: 1},
			{Path: "disk", Mode: unix.S_IFBLK, Links: 1}, {Path: "tty", Mode: unix.S_IFCHR, Links: 1}, {Path: "odd", Links: 1},
			reg("../escape", 1), reg("/etc/passwd", 1), reg("x/../../y", 1), reg("B.TXT", 1), reg("a", 1), reg("b.txt/c", 1),
			reg("sparse", 1<<40), reg("liar", 3), reg("short", 3), reg("gone", 1), reg("neg", -1), reg("esc\x1b[2J", 1), reg("\xff", 1),
		},
		content: map[string]string{"b.txt": "hello", "a/ok.txt": "ok", "liar": "four", "short": "ab", "B.TXT": "x", "a": "x"},
	}
	o, err := Fetch(t.Context(), tree, filepath.Join(t.TempDir(), "made"), Rules{MaxFiles: 100, MaxBytes: 1 << 20, Attempt: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := reasons(o)
	for path, want := range map[string]string{
		"link": "is a symbolic link", "hard": "has 2 links", "fifo": "is a fifo", "sock": "is a socket", "disk": "is a device", "tty": "is a device",
		"odd": "unknown kind", `"../escape"`: "leads elsewhere", `"/etc/passwd"`: "absolute", `"x/../../y"`: "leads elsewhere", "b.txt": "collides",
		"b.txt/c": "collides", "sparse": "output_bytes", "liar": "more bytes", "short": "gave 2 bytes", "gone": `\x1b`, "neg": "-1 bytes",
		`"esc\x1b[2J"`: "unprintable", `"\xff"`: "UTF-8", "a/ok.txt": "collides",
	} {
		if !strings.Contains(got[path], want) {
			t.Errorf("%s: %q, want %q", path, got[path], want)
		}
	}
	var kept []string
	for _, a := range o.Artifacts {
		kept = append(kept, a.Path)
	}
	// Sorted by bytes, "B.TXT" comes before "b.txt" and "a" before "a/ok.txt": the first keeps the name.
	if fmt.Sprint(kept) != "[B.TXT a]" {
		t.Errorf("kept %v", kept)
	}
}

func TestLimits(t *testing.T) {
	var files []File
	content := map[string]string{}
	for i := range 5 {
		p := fmt.Sprintf("f%d", i)
		files, content[p] = append(files, reg(p, 10)), "0123456789"
	}
	tree := hostile{files: files, content: content, more: true}
	dir := t.TempDir()
	o, err := Fetch(t.Context(), tree, dir, Rules{MaxFiles: 3, MaxBytes: 1000})
	if err != nil || len(o.Artifacts) != 3 || len(o.Rejected) != 3 {
		t.Fatalf("%+v, %v", o, err)
	}
	if e, _ := os.ReadDir(dir); len(e) != 3 {
		t.Errorf("%d files stored", len(e))
	}
	o, err = Fetch(t.Context(), tree, t.TempDir(), Rules{MaxFiles: 30, MaxBytes: 25})
	if err != nil || len(o.Artifacts) != 2 {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestManyRefusedFilesAreCounted(t *testing.T) {
	var files []File
	for i := range maxListed + 5 {
		files = append(files, File{Path: fmt.Sprint(i), Mode: unix.S_IFLNK, Links: 1})
	}
	o, err := Fetch(t.Context(), hostile{files: files}, t.TempDir(), Rules{})
	// One more stands for what was not looked at.
	if err != nil || len(o.Rejected) != MaxRejected || o.Refused != maxListed+1 {
		t.Errorf("%d rejected, %d refused, %v", len(o.Rejected), o.Refused, err)
	}
}

func TestRefusedTypesAreCounted(t *testing.T) {
	tree := hostile{content: map[string]string{}}
	for i := range MaxRejected + 50 {
		p := fmt.Sprint(i)
		tree.files, tree.content[p] = append(tree.files, reg(p, 1)), "x"
	}
	dir, rules := t.TempDir(), Rules{MaxFiles: 1000, MaxBytes: 1000, Types: []string{"image/png"}}
	o, err := Fetch(t.Context(), tree, dir, rules)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(rules); err != nil {
		t.Fatal(err)
	}
	if len(o.Artifacts) != 0 || len(o.Rejected) != MaxRejected || o.Refused != MaxRejected+50 {
		t.Errorf("%d artifacts, %d rejected, %d refused", len(o.Artifacts), len(o.Rejected), o.Refused)
	}
	if e, _ := os.ReadDir(dir); len(e) != 0 {
		t.Errorf("%d files stored", len(e))
	}
}

// Ten thousand of the longest names, of characters that JSON writes six times as
// long, once as artifacts and once with an agent that complains at length.
func TestListsAreBoundedByTheirBytes(t *testing.T) {
	long := strings.Repeat("<", 250)
	tree := hostile{content: map[string]string{}}
	for i := range 10_000 {
		p := fmt.Sprintf("%04d%s/%s/%s/%s", i, long, long, long, long)
		tree.files, tree.content[p] = append(tree.files, reg(p, 0)), ""
	}
	dir := t.TempDir()
	o, err := Fetch(t.Context(), tree, dir, Rules{MaxFiles: 10_000, MaxBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	total := len(o.Artifacts) + o.Refused
	if total != 10_000 || len(o.Artifacts) < 1000 || !strings.Contains(o.Rejected[0].Reason, "list of artifacts") {
		t.Errorf("%d artifacts, %d refused: %+v", len(o.Artifacts), o.Refused, o.Rejected[0])
	}
	if b, _ := json.Marshal(o.Artifacts); len(b) > maxListing+len(o.Artifacts)*len(dir) {
		t.Errorf("artifacts have %d bytes", len(b))
	}
	if b, _ := json.Marshal(o.Rejected); len(b) > 1<<20 {
		t.Errorf("rejected files have %d bytes", len(b))
	}
	if got := quoted(strings.Repeat("\xff", 1<<20), maxReason); len(got) > 4*maxReason+2 {
		t.Errorf("a reason has %d bytes", len(got))
	}
}

func TestMediaTypes(t *testing.T) {
	const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
	tree := hostile{files: []File{reg("chart.txt", int64(len(png))), reg("t.png", 5)}, content: map[string]string{"chart.txt": png, "t.png": "hello"}}
	for _, tc := range []struct {
		types []string
		want  string
	}{
		{nil, "[chart.txt=image/png t.png=text/plain]"}, {[]string{"image/png"}, "[chart.txt=image/png]"},
		{[]string{"text/*"}, "[t.png=text/plain]"}, {[]string{"application/pdf"}, "[]"}, {[]string{"*/*"}, "[chart.txt=image/png t.png=text/plain]"},
	} {
		rules := Rules{MaxFiles: 9, MaxBytes: 999, Types: tc.types}
		o, err := Fetch(t.Context(), tree, t.TempDir(), rules)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Validate(rules); err != nil {
			t.Fatal(err)
		}
		kept := []string{}
		for _, a := range o.Artifacts {
			kept = append(kept, a.Path+"="+a.MediaType)
		}
		if fmt.Sprint(kept) != tc.want || len(o.Artifacts)+len(o.Rejected) != 2 {
			t.Errorf("%v: %v, rejected %v", tc.types, kept, o.Rejected)
		}
	}
}

func TestCancelledCollectionFails(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Fetch(ctx, hostile{files: []File{reg("a", 1)}}, t.TempDir(), Rules{MaxFiles: 1, MaxBytes: 9}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzPrintable(f *testing.F) {
	for _, p := range []string{"a/b.txt", "esc\x1b[2J", "\xff", "\u202e"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if s := printable(p); strings.ContainsAny(s, "\x1b\n\r") {
			t.Errorf("%q is not safe to print", s)
		}
	})
}
