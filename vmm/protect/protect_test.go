package protect

import (
	"errors"
	"os"
	"reflect"
	"testing"

	"thaw/internal/pagemap"
	"thaw/internal/unixfd"
)

func TestRangesRoundTrip(t *testing.T) {
	list := []pagemap.Range{{First: 0, Count: 3}, {First: 3, Count: 1}, {First: 90, Count: 10}}
	got, err := parseRanges(nil, appendRanges(nil, list[:1]), 100)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = parseRanges(got, appendRanges(nil, list[1:]), 100); err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("got %v, %v", got, err)
	}
	for name, bad := range map[string][]pagemap.Range{
		"empty": {{First: 100, Count: 0}}, "beyond": {{First: 99, Count: 2}}, "wraps": {{First: 99, Count: ^uint32(0)}},
		"overlap": {{First: 5, Count: 2}, {First: 6, Count: 1}}, "descending": {{First: 7, Count: 1}, {First: 5, Count: 1}},
	} {
		if got, err := parseRanges(nil, appendRanges(nil, bad), 100); err == nil {
			t.Errorf("%s: taken as %v", name, got)
		}
	}
	if _, err := parseRanges(nil, make([]byte, 7), 100); err == nil {
		t.Error("half a range was taken")
	}
}

func FuzzRanges(f *testing.F) {
	f.Add(appendRanges(nil, []pagemap.Range{{First: 1, Count: 2}, {First: 7, Count: 1}}), uint64(100))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0}, uint64(1)<<32)
	f.Fuzz(func(t *testing.T, b []byte, pages uint64) {
		list, err := parseRanges(nil, b, pages)
		if err != nil {
			return
		}
		end := uint64(0)
		for _, r := range list {
			if uint64(r.First) < end || r.Count == 0 || uint64(r.First)+uint64(r.Count) > pages {
				t.Fatalf("range %+v after %d of %d", r, end, pages)
			}
			end = uint64(r.First) + uint64(r.Count)
		}
	})
}

// A VMM that speaks another language is told so, and the handler ends.
func TestHandlerRefuses(t *testing.T) {
	for name, messages := range map[string][][]byte{
		"pages before begin": {appendRanges([]byte{opPages}, []pagemap.Range{{First: 0, Count: 1}})},
		"no descriptor":      {append([]byte{opBegin}, make([]byte, 16)...)},
		"unknown":            {{99}},
		"end before begin":   {{opEnd}},
		"stage before begin": {{opStage}},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			defer theirs.Close()
			memory, err := os.Open("/proc/self/mem")
			if err != nil {
				t.Fatal(err)
			}
			defer memory.Close()
			done := make(chan error, 1)
			go func() { done <- Serve(theirs, memory) }()
			for _, m := range messages {
				if err := unixfd.Send(ours, m); err != nil {
					t.Fatal(err)
				}
			}
			if err := (&Client{conn: ours}).await(answerOK); !errors.Is(err, ErrHandler) {
				t.Errorf("got %v, want %v", err, ErrHandler)
			}
			if err := <-done; err == nil {
				t.Error("the handler went on")
			}
		})
	}
}

// A descriptor that is no userfaultfd is refused.
func TestNotAUserfaultfd(t *testing.T) {
	ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	done := make(chan error, 1)
	go func() { done <- Serve(theirs, null) }()
	c := &Client{conn: ours}
	if err := c.ask(append([]byte{opBegin}, make([]byte, 16)...), null); !errors.Is(err, ErrHandler) {
		t.Errorf("got %v, want %v", err, ErrHandler)
	}
	<-done
}

// Pages that somebody waits for are copied at once, and not again.
func TestStagingCopiesEachPageOnce(t *testing.T) {
	file := func(content func(page int) byte, pages int) *os.File {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		for i := range pages {
			b := make([]byte, pageSize)
			b[0] = content(i)
			if _, err := f.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		return f
	}
	const start = 2 * pageSize
	memory := file(func(page int) byte { return byte(page) }, 102)
	out := file(nil, 0)
	s := newStaging([]pagemap.Range{{First: 1, Count: 2}, {First: 10, Count: 40}}, out)
	for _, page := range []uint32{12, 0, 49, 1, 99, 12} {
		if err := s.copyOne(page, memory, start); err != nil {
			t.Fatal(err)
		}
	}
	// What is written from here on to a page that was waited for is of no interest.
	if _, err := memory.WriteAt([]byte{255}, start+12*pageSize); err != nil {
		t.Fatal(err)
	}
	for {
		more, err := s.copyNext(memory, start)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	place := int64(0)
	for _, page := range append([]int{1, 2}, seq(10, 50)...) {
		var b [1]byte
		if _, err := out.ReadAt(b[:], place*pageSize); err != nil || b[0] != byte(page+2) {
			t.Errorf("page %d at place %d: %d, %v", page, place, b[0], err)
		}
		place++
	}
}

func seq(from, to int) (list []int) {
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}
