package steps

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"thaw/api"
	"thaw/snapshot/policy"
)

func TestSteps(t *testing.T) {
	for spec, want := range map[string]string{
		"": "[false false false false]", "never": "[false false false false]", "every-step": "[true true true true]", "every:2": "[false true false true]",
		"when-changed": "[true true true true]",
	} {
		s, err := New("m", spec, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		var got []bool
		for range 4 {
			take := s.Done()
			if take {
				s.Reset()
			}
			got = append(got, take)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", spec, got, want)
		}
	}
	if _, err := New("m", "sometimes", nil, nil); !errors.Is(err, policy.ErrPolicy) {
		t.Errorf("unknown policy: %v", err)
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
	s.Done()
	s.Done()
	s.Taken(false, api.Record{Snapshot: "a", Pages: 7, Candidates: 9, PauseMS: 2, Consistent: &at, Durable: &later}, nil)
	s.Taken(true, api.Record{Snapshot: "b"}, errors.New("disk full"))
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
	if r := got[2]; r.Policy != ByHand || r.Error != "disk full" {
		t.Errorf("%+v", r)
	}
}
