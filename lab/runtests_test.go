package lab

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeRunner answers runs of a path with its next result.
type fakeRunner map[string][]result

type result struct {
	exit int
	err  error
}

func (f fakeRunner) Run(_ context.Context, cmd Command) (int, error) {
	path := cmd.Argv[0]
	r := f[path][0]
	f[path] = f[path][1:]
	fmt.Fprintf(cmd.Stdout, "output of %s\n", path)
	return r.exit, r.err
}

func TestTestReport(t *testing.T) {
	died := fmt.Errorf("%w: end", ErrDied)
	r := fakeRunner{
		"/a": {{0, nil}},
		"/b": {{1, nil}},
		"/c": {{-1, died}, {0, nil}},
		"/d": {{-1, context.DeadlineExceeded}},
	}
	var out bytes.Buffer
	rep, err := Test(t.Context(), r, []TestBinary{
		{Name: "a", Path: "/a"}, {Name: "b", Path: "/b"}, {Name: "c", Path: "/c"}, {Name: "d", Path: "/d"},
	}, &out)
	want := TestReport{Passed: []string{"a", "c"}, Failed: []string{"b", "d"}, Repeated: []string{"c"}}
	if d := cmp.Diff(want, rep); d != "" {
		t.Error(d)
	}
	if err == nil || !strings.Contains(err.Error(), "2 of 4 test binaries failed: b, d") {
		t.Errorf("error %v", err)
	}
	if n := strings.Count(out.String(), "output of /c"); n != 2 {
		t.Errorf("c ran %d times:\n%s", n, out.String())
	}
}

func TestTestStopsWhenTheLabIsGone(t *testing.T) {
	died := fmt.Errorf("%w: end", ErrDied)
	r := fakeRunner{"/a": {{-1, died}, {-1, died}}, "/b": {{0, nil}}}
	rep, err := Test(t.Context(), r, []TestBinary{{Name: "a", Path: "/a"}, {Name: "b", Path: "/b"}}, &bytes.Buffer{})
	if err == nil || len(rep.Passed) != 0 {
		t.Errorf("report %+v, error %v", rep, err)
	}
}

func TestBuildTests(t *testing.T) {
	module, err := findModule()
	if err != nil {
		t.Skip(err)
	}
	bins, err := BuildTests(t.Context(), module, t.TempDir(), []string{"./lab/labproto"})
	if err != nil {
		t.Fatal(err)
	}
	if len(bins) != 1 || bins[0].Name != "thaw/lab/labproto" || !strings.HasSuffix(bins[0].Dir, "/lab/labproto") {
		t.Errorf("binaries: %+v", bins)
	}
	if _, err := BuildTests(t.Context(), module, t.TempDir(), []string{"./no/such/package"}); err == nil {
		t.Error("a missing package is no error")
	}
}
