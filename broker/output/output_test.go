package output

import (
	"errors"
	"strings"
	"testing"

	"thaw/api"
)

func TestSplitRune(t *testing.T) {
	for in, want := range map[string]string{"": "", "a": "a", "é": "é", "a\xc3": "a", "a\xe2\x82": "a", "a\xff": "a\xff", "\x80\x80\x80\x80": "\x80\x80\x80\x80"} {
		if whole, rest := splitRune([]byte(in)); string(whole) != want || string(whole)+string(rest) != in {
			t.Errorf("%q: %q and %q", in, whole, rest)
		}
	}
}

// What comes in pieces goes on as whole sequences, up to the limit; the rest is counted.
func TestStream(t *testing.T) {
	var got []string
	s := New(6, func(b []byte) error { got = append(got, string(b)); return nil })
	for _, piece := range []string{"a\xc3", "\xa9b", "cdefg"} {
		if n, err := s.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Errorf("%q: %d, %v", piece, n, err)
		}
	}
	if strings.Join(got, "|") != "a|éb|cd" {
		t.Errorf("got %q", got)
	}
	if i := s.Stats(10); i != (api.StreamInfo{Bytes: 6, Dropped: 13}) {
		t.Errorf("stats %+v", i)
	}
	failed := errors.New("gone")
	s = New(9, func([]byte) error { return failed })
	if _, err := s.Write([]byte("x")); !errors.Is(err, failed) {
		t.Errorf("write to a stream that nobody takes: %v", err)
	}
	got = nil
	s = New(9, func(b []byte) error { got = append(got, string(b)); return nil })
	_, _ = s.Write([]byte("a\xc3"))
	s.Flush()
	if strings.Join(got, "|") != "a|\xc3" {
		t.Errorf("flushed %q", got)
	}
}
