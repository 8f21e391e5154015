package client

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"thaw/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestResolve(t *testing.T) {
	t.Setenv(HostEnv, "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	for host, want := range map[string]string{
		"": DefaultSocket, "local": DefaultSocket, "lab": "/run/user/7/thaw-lab.sock", "unix:///x/y": "/x/y", "/x/y": "/x/y",
	} {
		if got, err := Resolve(host); err != nil || got != want {
			t.Errorf("%q: %q, %v", host, got, err)
		}
	}
	for _, host := range []string{"tcp://x", "unix://relative", "other"} {
		if _, err := Resolve(host); !errors.Is(err, api.Errorf(api.CodeBadRequest, "")) {
			t.Errorf("%q: %v", host, err)
		}
	}
	t.Setenv(HostEnv, "unix:///from/env")
	if got, err := Resolve(""); err != nil || got != "/from/env" {
		t.Errorf("environment: %q, %v", got, err)
	}
}

func TestNoDaemonSaysWhatToDo(t *testing.T) {
	c, err := New(filepath.Join(t.TempDir(), "nobody"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var e *api.Error
	if _, err := c.Info(t.Context()); !errors.As(err, &e) || e.Code != api.CodeDaemonDown || e.Remedy == "" {
		t.Errorf("got %v", err)
	}
}

func events(t *testing.T, stream string) (out []event, err error) {
	t.Helper()
	r := newSSEReader(strings.NewReader(stream))
	for {
		e, err := r.next()
		if err != nil {
			return out, err
		}
		out = append(out, e)
	}
}

func TestSSE(t *testing.T) {
	const stream = ": hello\r\n\r\nid: 7\nevent: stdout\ndata: one\ndata:two\n\nevent: lonely\n\nid: x\ndata: \n\nfield\ndata: unfinished"
	got, err := events(t, stream)
	if !errors.Is(err, io.EOF) || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].id != 7 || got[0].name != "stdout" || string(got[0].data) != "one\ntwo" || len(got[1].data) != 0 || got[1].id != 0 {
		t.Errorf("%+v", got)
	}
	long := strings.Repeat("x", 200<<10)
	if got, _ := events(t, "data: "+long+"\n\n"); len(got) != 1 || string(got[0].data) != long {
		t.Error("a long line is cut")
	}
}

func TestSSEIsBounded(t *testing.T) {
	for name, r := range map[string]io.Reader{
		"one endless line":  io.MultiReader(strings.NewReader("data: "), endless("x")),
		"endless data":      endless("data: 0123456789\n"),
		"endless long data": endless("data: " + strings.Repeat("x", 100<<10) + "\n"),
	} {
		if _, err := newSSEReader(r).next(); !errors.Is(err, errEventTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// endless repeats a text for ever.
func endless(text string) io.Reader { return &repeater{text: []byte(text)} }

type repeater struct {
	text []byte
	at   int
}

func (r *repeater) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

func FuzzSSE(f *testing.F) {
	f.Add([]byte("id: 1\nevent: state\ndata: {\"state\":\"done\"}\n\n"))
	f.Add([]byte("event: stdout\ndata: {\"encoding\":\"base64\",\"data\":\"!!\"}\r\n\r\n: x\n\n"))
	f.Add([]byte("event: gap\ndata: 3\n\nevent: result\ndata: {}\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newSSEReader(bytes.NewReader(b))
		w := Watcher{
			State: func(api.StateEvent) error { return nil }, Stdout: func([]byte) error { return nil },
			Stderr: func([]byte) error { return nil }, Gap: func(api.GapEvent) error { return nil },
		}
		total := 0
		for {
			e, err := r.next()
			if err != nil {
				return
			}
			if total += len(e.data); total > len(b) {
				t.Fatal("more data than came in")
			}
			_ = w.handle(e)
			_, _ = decode[api.Job](e)
		}
	})
}
