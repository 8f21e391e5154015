package warm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// pair returns a Conn and the interpreter's end.
func pair(t testing.TB) (*Conn, net.Conn) {
	t.Helper()
	mine, theirs := net.Pipe()
	t.Cleanup(func() { mine.Close(); theirs.Close() })
	return NewConn(mine), theirs
}

func frame(body string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func everything(Answer) bool { return true }

// What is sent reads as JSON, with bytes that are not UTF-8 as surrogates.
func TestSend(t *testing.T) {
	odd := "a\"\\\n\x7fé\xff\U0001f600"
	for _, c := range []struct {
		send func(*Conn) error
		want string
	}{
		{func(c *Conn) error { return c.SendGeneration(Generation{Number: 7, Seed: []byte{1, 0xab}}) },
			`{"op":"generation","number":7,"seed":"01ab"}`},
		{func(c *Conn) error { return c.SendCell(Cell{ID: 1, Source: odd}) },
			`{"op":"cell","id":1,"source":"a\"\\\u000a\u007fé\udcff😀"}`},
		{func(c *Conn) error {
			return c.SendJob(Job{Argv: []string{"python3", odd}, Env: []string{"A=1"}, Cwd: "/w", Stdin: true})
		}, `{"op":"run","argv":["python3","a\"\\\u000a\u007fé\udcff😀"],"env":["A=1"],"cwd":"/w","stdin":true,"cold":""}`},
		{func(c *Conn) error { return c.SendJob(Job{Cold: "why"}) }, `{"op":"run","argv":[],"env":[],"cwd":"","stdin":false,"cold":"why"}`},
		{func(c *Conn) error {
			return c.SendCell(Cell{ID: 2, Source: "x", Generation: &Generation{Number: 7, Seed: []byte{1, 0xab}}})
		},
			`{"op":"cell","id":2,"source":"x","number":7,"seed":"01ab"}`},
		{func(c *Conn) error { return c.SendJob(Job{Generation: &Generation{Number: 8, Seed: []byte{2}}}) },
			`{"op":"run","argv":[],"env":[],"cwd":"","stdin":false,"cold":"","number":8,"seed":"02"}`},
	} {
		conn, peer := pair(t)
		done := make(chan error, 1)
		go func() { done <- c.send(conn) }()
		got := make([]byte, 4+len(c.want))
		if _, err := io.ReadFull(peer, got); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if string(got) != string(frame(c.want)) {
			t.Errorf("sent %q\nwant %q", got[4:], c.want)
		}
		if !json.Valid(got[4:]) {
			t.Errorf("%q is no JSON", got[4:])
		}
	}
}

func TestSendTooLarge(t *testing.T) {
	conn, _ := pair(t)
	if err := conn.SendCell(Cell{Source: strings.Repeat("x", MaxSent)}); err == nil {
		t.Error("a message over the bound was sent")
	}
}

func TestReceive(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		ok           bool
		protocol     bool
	}{
		{"ready", string(frame(`{"op":"ready","runtime":"python","version":"3","modules":3,"missing":["x"],"took_us":5}`)), true, false},
		{"unknown fields", string(frame(`{"op":"run","later":[1]}`)), true, false},
		{"unknown kind", string(frame(`{"op":"else"}`)), false, true},
		{"no kind", string(frame(`{}`)), false, true},
		{"no JSON", string(frame(`{`)), false, true},
		{"other types", string(frame(`{"op":1}`)), false, true},
		{"array", string(frame(`[]`)), false, true},
		{"empty", string(frame(``)), false, true},
		{"unknown status", string(frame(`{"op":"cell","status":"odd"}`)), false, true},
		{"negative", string(frame(`{"op":"ready","modules":-1}`)), false, true},
		{"errno", string(frame(`{"op":"run","errno":99999}`)), false, true},
		{"long text", string(frame(`{"op":"run","cold":"` + strings.Repeat("x", 300) + `"}`)), false, true},
		{"many missing", string(frame(`{"op":"ready","missing":[` + strings.Repeat(`"x",`, 300) + `"x"]}`)), false, true},
		{"long", "\xff\xff\xff\xff", false, true},
		{"half a header", "\x01", false, false},
		{"half a body", "\x08\x00\x00\x00{", false, false},
		{"nothing", "", false, false},
		{"skipped", string(frame(`{"op":"generation"}`)) + string(frame(`{"op":"cell","id":2,"status":"ok"}`)), true, false},
		{"only skipped", strings.Repeat(string(frame(`{"op":"generation"}`)), maxSkipped+1), false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, peer := pair(t)
			go func() {
				_, _ = io.WriteString(peer, c.stream)
				peer.Close()
			}()
			_, err := conn.Receive(time.Now().Add(time.Minute), func(a Answer) bool { return a.Kind != KindGeneration })
			if (err == nil) != c.ok || errors.Is(err, ErrProtocol) != c.protocol {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestReceiveDeadline(t *testing.T) {
	conn, _ := pair(t)
	if _, err := conn.Receive(time.Now().Add(10*time.Millisecond), everything); err == nil {
		t.Error("an answer out of nothing")
	}
}

// A large answer does not change when the next one comes.
func TestReuseOfBuffer(t *testing.T) {
	conn, peer := pair(t)
	long := strings.Repeat("é", 100<<10)
	go func() {
		_, _ = peer.Write(frame(`{"op":"cell","status":"ok","result":"` + long + `"}`))
		_, _ = peer.Write(frame(`{"op":"cell","status":"ok","result":"short"}`))
	}()
	first, err := conn.Receive(time.Time{}, everything)
	if err != nil || *first.Result != long {
		t.Fatal(err)
	}
	if second, err := conn.Receive(time.Time{}, everything); err != nil || *second.Result != "short" || *first.Result != long {
		t.Error(err)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"éé", 3, "é"}, {"é", 1, ""}, {"\x80\x80", 1, ""}, {"", 0, ""}} {
		if got := Cut(c.s, c.n); got != c.want {
			t.Errorf("Cut(%q, %d) = %q", c.s, c.n, got)
		}
	}
}

// FuzzReceive: no stream panics, takes memory beyond the bound, or gets an
// answer through that is out of bounds.
func FuzzReceive(f *testing.F) {
	f.Add(frame(`{"op":"ready","runtime":"python","version":"3.13.5","modules":640,"missing":[],"took_us":450000}`))
	f.Add(append(frame(`{"op":"generation","number":0}`), frame(`{"op":"cell","id":1,"status":"error","type":"E","message":"m"}`)...))
	f.Add(frame(`{"op":"run","cold":"local module json"}`))
	f.Add(frame(`{"op":"cell","result":"\udcff\ud83d","cut":true}`))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := NewConn(reader{strings.NewReader(string(stream))})
		for {
			a, err := c.Receive(time.Time{}, everything)
			if err != nil {
				return
			}
			if len(a.Cold) > maxText || len(a.Type) > maxText || len(a.Missing) > maxModules || a.Errno < 0 || a.TookUS < 0 {
				t.Errorf("out of bounds: %+v", a)
			}
			if a.Result != nil && !utf8.ValidString(*a.Result) {
				t.Errorf("result %q is not UTF-8", *a.Result)
			}
		}
	})
}

// FuzzSend: whatever a host sends arrives as JSON that holds the same.
func FuzzSend(f *testing.F) {
	f.Add("x = 1", "é\xff\u2028")
	f.Fuzz(func(t *testing.T, a, b string) {
		out := appendList(nil, []string{a, b})
		var got []string
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		for i, s := range []string{a, b} {
			if utf8.ValidString(s) && got[i] != s {
				t.Errorf("%q became %q", s, got[i])
			}
		}
	})
}

// reader is a stream that only ends.
type reader struct{ *strings.Reader }

func (reader) Write(b []byte) (int, error)      { return len(b), nil }
func (reader) SetReadDeadline(time.Time) error  { return nil }
func (reader) SetWriteDeadline(time.Time) error { return nil }
