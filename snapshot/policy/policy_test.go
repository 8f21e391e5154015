package policy

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestPolicies(t *testing.T) {
	// Pages changed by each of six steps, none by the third.
	pages := []int64{71, 300, 0, 20, 255, 256}
	for spec, want := range map[string][]int{
		"never":            nil,
		"every-step":       {1, 2, 3, 4, 5, 6},
		"every:1":          {1, 2, 3, 4, 5, 6},
		"every:4":          {4},
		"when-changed":     {2, 5, 6},
		"when-changed:1":   {1, 2, 4, 5, 6},
		"when-changed:256": {2, 5, 6},
	} {
		p, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		since, sum := 0, int64(0)
		for i, n := range pages {
			since, sum = since+1, sum+n
			if p.Checkpoint(Step{N: i + 1, Since: since, Pages: sum}) {
				got, since, sum = append(got, i+1), 0, 0
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, not %v", spec, got, want)
		}
		if p.NeedsPages() != strings.HasPrefix(spec, "when") {
			t.Errorf("%s: needs pages: %v", spec, p.NeedsPages())
		}
	}
	p, err := Parse("when-changed:9")
	if err != nil {
		t.Fatal(err)
	}
	if !p.Checkpoint(Step{Pages: -1}) || !p.Checkpoint(Step{DiskBytes: 1}) {
		t.Error("what is not known, or on a disk, counts as changed")
	}
}

func TestParseRefuses(t *testing.T) {
	for _, spec := range []string{"", "sometimes", "never:1", "every", "every:0", "every:x", "when-changed:-1", "every-step:2"} {
		if _, err := Parse(spec); !errors.Is(err, ErrPolicy) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

func TestRegister(t *testing.T) {
	Register("test-odd", func(string) (Policy, error) { return every{2}, nil })
	if _, err := Parse("test-odd"); err != nil || !slices.Contains(Names(), "test-odd") {
		t.Fatal(err)
	}
	for _, name := range []string{"never", "", "a:b"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was taken", name)
				}
			}()
			Register(name, nil)
		}()
	}
}

func TestRecords(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			if err := w.Write(Record{Step: i, Time: time.Unix(int64(i), 0).UTC(), PauseMS: Milliseconds(1500 * time.Microsecond)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b.WriteString(`{"step": 11`) // a crash
	got, err := ReadAll(&b)
	if err != nil || len(got) != 10 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	slices.SortFunc(got, func(a, b Record) int { return a.Step - b.Step })
	want := Record{Step: 3, Time: time.Unix(3, 0).UTC(), PauseMS: 1.5}
	if !reflect.DeepEqual(got[3], want) {
		t.Fatalf("%+v", got[3])
	}
	for _, text := range []string{"[]\n", strings.Repeat("x", maxLine+1)} {
		if _, err := ReadAll(strings.NewReader(text)); err == nil {
			t.Errorf("%.20q was read", text)
		}
	}
}

func FuzzReadAll(f *testing.F) {
	f.Add([]byte("{\"step\":1}\n{\"time\":\"2030-01-01T00:00:00Z\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ReadAll(bytes.NewReader(b))
		if err == nil && len(got) != bytes.Count(b, []byte("\n")) {
			t.Fatalf("%d records in %q", len(got), b)
		}
	})
}
