package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func drain(t *testing.T, r *Reader) (types []string, gap Gap) {
	t.Helper()
	for {
		e, g, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return types, gap
		}
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, fmt.Sprintf("%d%s", e.ID, e.Type))
		gap.Events += g.Events
		gap.Bytes += g.Bytes
	}
}

func TestReplayAndResume(t *testing.T) {
	l := New(Options{MaxBytes: 100})
	l.Append("state", nil)
	if err := l.AppendOutput(t.Context(), "out", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	l.Append("result", nil)
	l.Close()
	for after, want := range map[uint64]string{0: "[1state 2out 3result]", 1: "[2out 3result]", 3: "[]", 99: "[]"} {
		r := l.Subscribe(after)
		got, gap := drain(t, r)
		r.Close()
		if fmt.Sprint(got) != want || gap != (Gap{}) {
			t.Errorf("after %d: %v, gap %+v, want %s", after, got, gap, want)
		}
	}
}

func TestUnreadOutputIsDroppedAndToldAsAGap(t *testing.T) {
	l := New(Options{MaxBytes: 10, Attach: time.Millisecond})
	l.Append("state", nil)
	for range 5 {
		if err := l.AppendOutput(t.Context(), "out", []byte("12345")); err != nil {
			t.Fatal(err)
		}
	}
	l.Append("result", nil)
	l.Close()
	r := l.Subscribe(0)
	defer r.Close()
	got, gap := drain(t, r)
	if fmt.Sprint(got) != "[1state 5out 6out 7result]" || gap != (Gap{Events: 3, Bytes: 15}) {
		t.Errorf("%v, gap %+v", got, gap)
	}
}

func TestWriterWaitsForASlowReader(t *testing.T) {
	l := New(Options{MaxBytes: 10, Attach: time.Hour, Stall: time.Hour})
	r := l.Subscribe(0)
	defer r.Close()
	done := make(chan error, 1)
	go func() {
		var err error
		for range 50 {
			err = errors.Join(err, l.AppendOutput(context.Background(), "out", []byte("12345")))
		}
		l.Close()
		done <- err
	}()
	select {
	case <-done:
		t.Fatal("the writer ran ahead of its reader")
	case <-time.After(20 * time.Millisecond):
	}
	got, gap := drain(t, r)
	if len(got) != 50 || gap != (Gap{}) {
		t.Errorf("%d entries, gap %+v", len(got), gap)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestStalledReaderGetsAGapAndDoesNotHoldTheJob(t *testing.T) {
	l := New(Options{MaxBytes: 10, Stall: 5 * time.Millisecond})
	r := l.Subscribe(0)
	defer r.Close()
	for range 4 {
		if err := l.AppendOutput(t.Context(), "out", []byte("12345")); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	if got, gap := drain(t, r); len(got) != 2 || gap.Bytes != 10 {
		t.Errorf("%v, gap %+v", got, gap)
	}
}

func TestWaitingWriterEnds(t *testing.T) {
	l := New(Options{MaxBytes: 4, Attach: time.Hour, Stall: time.Hour})
	if err := l.AppendOutput(t.Context(), "out", []byte("1234")); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := l.AppendOutput(ctx, "out", []byte("1")); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	done := make(chan error)
	go func() { done <- l.AppendOutput(context.Background(), "out", []byte("1")) }()
	l.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := l.AppendOutput(t.Context(), "out", bytes.Repeat([]byte{1}, 5)); !errors.Is(err, io.ErrShortBuffer) {
		t.Errorf("oversized entry: %v", err)
	}
}

// A program that writes byte by byte must not cost the daemon more than itself.
func BenchmarkOutputIntoAFullLog(b *testing.B) {
	l := New(Options{MaxBytes: 512 << 10})
	l.Append("state", []byte(`"running"`))
	for b.Loop() {
		if err := l.AppendOutput(b.Context(), "stdout", []byte(`{"text":"x"}`)); err != nil {
			b.Fatal(err)
		}
	}
}
