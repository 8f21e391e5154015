package steps

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"thaw/api"
	"thaw/snapshot/policy"
)

func TestSteps(t *testing.T) {
	for spec, want := range map[string]string{
		"": "[false false false false]", "never": "[false false false false]", "every-step": "[true true true true]", "every:2": "[false true false true]",
		"when-changed": "[true false false true]", "when-changed:10": "[true true false true]",
	} {
		s, err := New("m", spec, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var got []bool
		now, asked := Change{}, 0
		count := func() (Change, error) { asked++; return now, nil }
		// What changes between steps is not a step's.
		for _, by := range []struct{ between, within int64 }{{200, 100}, {200, 50}, {50, 9}, {1000, 120}} {
			now.Pages += by.between
			mark := s.Begin(count)
			now.Pages += by.within
			take := s.Done(mark, count).Take
			if take {
				s.Reset()
				now = Change{}
			}
			got = append(got, take)
		}
		if strings.HasPrefix(spec, "when") != (asked > 0) {
			t.Errorf("%s: looked %d times", spec, asked)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", spec, got, want)
		}
	}
	if _, err := New("m", "sometimes", nil, nil); !errors.Is(err, policy.ErrPolicy) {
		t.Errorf("unknown policy: %v", err)
	}
}

// What is decided on is in the record, of steps that are passed over and of those that are
// taken. What is on a disk counts as changed, and so does what is not known.
func TestChanges(t *testing.T) {
	var file bytes.Buffer
	s, err := New("m", "when-changed", policy.NewWriter(&file), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	step := func(before, after Change, failure error) Decision {
		return s.Done(s.Begin(func() (Change, error) { return before, nil }), func() (Change, error) { return after, failure })
	}
	if step(Change{100, 4096}, Change{90, 4096}, nil).Take {
		t.Error("taken although there is less than before")
	}
	d := step(Change{90, 4096}, Change{95, 8192}, nil)
	if !d.Take {
		t.Error("passed over although a block was written")
	}
	s.Reset()
	s.Taken(&d, api.Record{Snapshot: "a"}, nil)
	if d = step(Change{}, Change{}, errors.New("gone")); !d.Take {
		t.Error("passed over although nobody knows")
	}
	s.Taken(&d, api.Record{Snapshot: "b"}, nil)
	s.Reset()
	// A checkpoint within a step: what counts is all since then.
	m := s.Begin(func() (Change, error) { return Change{Pages: 1000}, nil })
	s.Reset()
	if d = s.Done(m, func() (Change, error) { return Change{Pages: 300}, nil }); !d.Take {
		t.Error("passed over although 300 pages have changed since the checkpoint")
	}
	s.Taken(&d, api.Record{Snapshot: "c"}, nil)
	s.Reset()
	// What a step has changed that was cut off is looked at after the next.
	s.Failed(s.Begin(func() (Change, error) { return Change{}, nil }), func() (Change, error) { return Change{Pages: 200}, nil })
	if d = step(Change{Pages: 200}, Change{Pages: 200}, nil); !d.Take {
		t.Error("passed over although a step that failed has changed 200 pages")
	}
	got, err := policy.ReadAll(&file)
	if err != nil || len(got) != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []struct {
		taken bool
		policy.Counts
	}{{false, policy.Counts{}}, {true, policy.Counts{Pages: 5, DiskBytes: 4096}}, {true, policy.Counts{Pages: -1, DiskBytes: -1}}} {
		if r := got[i]; r.Taken != want.taken || r.Decided == nil || *r.Decided != want.Counts || r.Policy != "when-changed" {
			t.Errorf("record %d: %+v, decided on %+v", i, r, r.Decided)
		}
	}
}

func TestRecords(t *testing.T) {
	var file bytes.Buffer
	s, err := New("m", "every:2", policy.NewWriter(&file), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	later := at.Add(20 * time.Millisecond)
	s.Done(Mark{}, nil)
	d := s.Done(Mark{}, nil)
	s.Taken(&d, api.Record{Snapshot: "a", Pages: 7, Candidates: 9, PauseMS: 2, Consistent: &at, Durable: &later}, nil)
	s.Taken(nil, api.Record{Snapshot: "b"}, errors.New("disk full"))
	got, err := policy.ReadAll(&file)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := got[0]; r.Taken || r.Step != 1 || r.Machine != "m" || r.Policy != "every:2" {
		t.Errorf("%+v", r)
	}
	if r := got[1]; !r.Taken || r.Snapshot != "a" || r.Stored != 7 || r.Dirty != 9 || r.PauseMS != 2 || r.DurableMS != 20 || r.Step != 2 {
		t.Errorf("%+v", r)
	}
	if got[0].Decided != nil || got[1].Decided != nil {
		t.Errorf("a policy that counts steps was told of pages: %+v", got)
	}
	if r := got[2]; r.Policy != ByHand || r.Error != "disk full" {
		t.Errorf("%+v", r)
	}
}
