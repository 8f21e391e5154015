package labproto

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/yamux"
)

func TestFrameRoundTrip(t *testing.T) {
	var b bytes.Buffer
	frames := []Frame{
		{TypeStdout, []byte("hello")},
		{TypeCloseStdin, []byte{}},
		{TypeStdin, bytes.Repeat([]byte{7}, MaxData)},
		{TypeRequest, bytes.Repeat([]byte{' '}, MaxRequest)},
	}
	for _, f := range frames {
		if err := Write(&b, f.Type, f.Data); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(&b)
	for _, want := range frames {
		got, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if got.Type != want.Type || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("got type %d with %d bytes, want type %d with %d", got.Type, len(got.Data), want.Type, len(want.Data))
		}
	}
	if _, err := r.Read(); err != io.EOF {
		t.Errorf("after the last frame: %v, want io.EOF", err)
	}
}

func TestBadFrames(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want error
	}{
		"type 0":           {"\x00\x00\x00\x00\x00\x00\x00\x00", ErrFrame},
		"type unknown":     {"\x63\x00\x00\x00\x00\x00\x00\x00", ErrFrame},
		"reserved":         {"\x05\x00\x01\x00\x00\x00\x00\x00", ErrFrame},
		"data too long":    {"\x05\x00\x00\x00\x01\x00\x01\x00", ErrFrame},
		"request too long": {"\x01\x00\x00\x00\x01\x00\x10\x00", ErrFrame},
		"cut header":       {"\x05\x00\x00", io.ErrUnexpectedEOF},
		"cut payload":      {"\x05\x00\x00\x00\x04\x00\x00\x00ab", io.ErrUnexpectedEOF},
		"no payload":       {"\x05\x00\x00\x00\x04\x00\x00\x00", io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewReader(strings.NewReader(c.in)).Read()
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestWriteRefusesLongData(t *testing.T) {
	if err := Write(io.Discard, TypeStdout, make([]byte, MaxData+1)); !errors.Is(err, ErrFrame) {
		t.Errorf("got %v, want ErrFrame", err)
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	want := Request{Op: OpExec, Argv: []string{"true"}, Env: []string{"A=b"}, Dir: "/"}
	if err := WriteJSON(&b, TypeRequest, want); err != nil {
		t.Fatal(err)
	}
	var got Request
	if err := ReadJSON(NewReader(&b), TypeRequest, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	Write(&b, TypeStdout, nil)
	if err := ReadJSON(NewReader(&b), TypeReply, &got); !errors.Is(err, ErrFrame) {
		t.Errorf("wrong type: %v, want ErrFrame", err)
	}
}

func TestRequestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		r  Request
		ok bool
	}{
		"exec":             {Request{Op: OpExec, Argv: []string{"true"}}, true},
		"exec in dir":      {Request{Op: OpExec, Argv: []string{"true"}, Dir: "/tmp"}, true},
		"exec nothing":     {Request{Op: OpExec}, false},
		"exec empty name":  {Request{Op: OpExec, Argv: []string{""}}, false},
		"exec relative":    {Request{Op: OpExec, Argv: []string{"true"}, Dir: "tmp"}, false},
		"connect":          {Request{Op: OpConnect, Path: "/run/x.sock"}, true},
		"connect relative": {Request{Op: OpConnect, Path: "x.sock"}, false},
		"signal":           {Request{Op: OpSignal, PID: 2, Signal: 9}, true},
		"signal all":       {Request{Op: OpSignal, PID: -1, Signal: 9}, false},
		"signal init":      {Request{Op: OpSignal, PID: 1, Signal: 9}, false},
		"signal nothing":   {Request{Op: OpSignal, PID: 2}, false},
		"info":             {Request{Op: OpInfo}, true},
		"nothing":          {Request{}, false},
	} {
		if err := c.r.Check(); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want ok %v", name, err, c.ok)
		}
	}
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		e    Exit
		want int
	}{{Exit{}, 0}, {Exit{Code: 3}, 3}, {Exit{Signal: 9}, 137}} {
		if got := c.e.Status(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.e, got, c.want)
		}
	}
}

// Both ends of a spliced pair see the other's end of stream while their own
// direction goes on.
func TestSpliceOverMux(t *testing.T) {
	hostEnd, labEnd := net.Pipe()
	client, err := yamux.Client(hostEnd, MuxConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := yamux.Server(labEnd, MuxConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			s, err := server.AcceptStream()
			if err != nil {
				return
			}
			go func() { // an echo that answers only after the end of its input
				b, _ := io.ReadAll(s)
				s.Write(b)
				s.Close()
			}()
		}
	}()
	stream, err := client.OpenStream()
	if err != nil {
		t.Fatal(err)
	}
	near, far := unixPair(t)
	done := make(chan struct{})
	go func() { Splice(far, stream); close(done) }()
	want := bytes.Repeat([]byte("thaw"), 100_000)
	go func() {
		near.Write(want)
		near.CloseWrite()
	}()
	got, err := io.ReadAll(near)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes back, want %d", len(got), len(want))
	}
	<-done
}

func unixPair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	b, err = l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}
