package agent_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agent"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// raw is a connection that sends what it likes.
type raw struct {
	t *testing.T
	net.Conn
	r *agentproto.Reader
}

func (f *fixture) raw(t *testing.T) *raw {
	t.Helper()
	c, err := f.dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &raw{t, c, agentproto.NewReader(c)}
}

func (r *raw) message(t agentproto.FrameType, v any) {
	r.t.Helper()
	b, err := agentproto.AppendMessage(nil, t, v)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) frame(t agentproto.FrameType, flags uint8, b []byte) {
	r.t.Helper()
	out, err := agentproto.AppendFrame(nil, t, flags, b)
	if err != nil {
		r.t.Fatal(err)
	}
	_, _ = r.Write(out) // the agent may have closed
}

// wantRefused reads until the agent has said error and closed.
func (r *raw) wantRefused() {
	r.t.Helper()
	refused := false
	for {
		f, err := r.r.Next()
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				r.t.Fatal("the agent does not close the connection")
			}
			break
		}
		refused = refused || f.Type == agentproto.FrameError
	}
	if !refused {
		r.t.Error("closed without an error frame")
	}
}

func TestProtocolViolations(t *testing.T) {
	f := newFixture(t, nil)
	sleep := agentproto.ExecRequest{Argv: []string{"sleep", "60"}}
	for _, c := range []struct {
		name string
		send func(r *raw)
	}{
		{"unknown frame", func(r *raw) { _, _ = r.Write([]byte{0x3e, 0, 0, 0, 0, 0, 0, 0}) }},
		{"reply as request", func(r *raw) { r.frame(agentproto.FrameOK, 0, nil) }},
		{"huge frame", func(r *raw) {
			h := make([]byte, 8)
			h[0] = byte(agentproto.FrameInfo)
			binary.LittleEndian.PutUint32(h[4:], 1<<31)
			_, _ = r.Write(h)
		}},
		{"request within exec", func(r *raw) {
			r.message(agentproto.FrameExec, sleep)
			r.message(agentproto.FrameInfo, nil)
		}},
		{"stdin without stdin", func(r *raw) {
			r.message(agentproto.FrameExec, sleep)
			r.frame(agentproto.FrameStdin, 0, []byte("x"))
		}},
		{"stdin beyond credit", func(r *raw) {
			req := sleep
			req.Stdin = true
			r.message(agentproto.FrameExec, req)
			for range agentproto.StdinWindow/agentproto.MaxPayload + 3 {
				r.frame(agentproto.FrameStdin, 0, make([]byte, agentproto.MaxPayload))
			}
		}},
		{"stdin after its end", func(r *raw) {
			req := sleep
			req.Stdin = true
			r.message(agentproto.FrameExec, req)
			r.frame(agentproto.FrameStdin, agentproto.FlagEnd, nil)
			r.frame(agentproto.FrameStdin, 0, []byte("x"))
		}},
		{"bad signal", func(r *raw) {
			r.message(agentproto.FrameExec, sleep)
			r.message(agentproto.FrameSignal, agentproto.Signal{Number: 99})
		}},
		{"request within put", func(r *raw) {
			r.message(agentproto.FramePut, agentproto.PutRequest{Path: "x", Size: 10})
			r.message(agentproto.FrameInfo, nil)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := f.raw(t)
			c.send(r)
			r.wantRefused()
		})
	}
	// It serves others as before, and nothing of those execs is left.
	if err := f.client.Ping(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.waitIdle(t)
	if files, err := f.client.ListFiles(context.Background(), "", 10); err != nil || len(files) != 0 {
		t.Errorf("files are left: %v, %v", files, err)
	}
}

// waitIdle waits until no exec runs.
func (f *fixture) waitIdle(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		u, err := f.client.Usage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if u.Execs == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d execs are left", u.Execs)
		}
	}
}

// A request that is not valid is refused, and the connection goes on.
func TestBadRequestKeepsConnection(t *testing.T) {
	f := newFixture(t, nil)
	r := f.raw(t)
	for _, typ := range []agentproto.FrameType{agentproto.FrameExec, agentproto.FramePut, agentproto.FrameGet, agentproto.FrameList} {
		r.frame(typ, 0, []byte("\xff\xff"))
		if fr, err := r.r.Next(); err != nil || fr.Type != agentproto.FrameError {
			t.Fatalf("%s: %v, %v", typ, fr.Type, err)
		}
	}
	r.message(agentproto.FramePing, agentproto.Ping{Nonce: 1})
	if fr, err := r.r.Next(); err != nil || fr.Type != agentproto.FrameOK {
		t.Fatalf("%v, %v", fr.Type, err)
	}
}

// Frames of an exec that come after its end are skipped.
func TestStaleFrames(t *testing.T) {
	f := newFixture(t, nil)
	r := f.raw(t)
	r.frame(agentproto.FrameStdin, 0, []byte("late"))
	r.message(agentproto.FrameSignal, agentproto.Signal{Number: 9})
	r.message(agentproto.FrameCancel, nil)
	r.frame(agentproto.FramePutData, agentproto.FlagEnd, []byte("late"))
	r.message(agentproto.FramePing, agentproto.Ping{Nonce: 1})
	if fr, err := r.r.Next(); err != nil || fr.Type != agentproto.FrameOK {
		t.Fatalf("%v, %v", fr.Type, err)
	}
}

// A host that goes away takes its execs with it.
func TestDisconnectKills(t *testing.T) {
	f := newFixture(t, nil)
	for _, script := range []string{
		"trap '' TERM HUP PIPE; while :; do sleep 1; done",
		"trap '' TERM HUP PIPE; while :; do echo output; done",
	} {
		r := f.raw(t)
		r.message(agentproto.FrameExec, agentproto.ExecRequest{Argv: []string{"/bin/sh", "-c", script}})
		if fr, err := r.r.Next(); err != nil || fr.Type != agentproto.FrameStarted {
			t.Fatalf("%v, %v", fr.Type, err)
		}
		time.Sleep(50 * time.Millisecond)
		r.Close()
		f.waitIdle(t)
	}
}

// An output pipe held outside the exec is given up on.
func TestOutputHeldElsewhere(t *testing.T) {
	f := newFixture(t, nil)
	ctx := context.Background()
	// The second exec opens the first one's stdout, which their user owns.
	var out bytes.Buffer
	first, err := f.client.Exec(ctx, agentproto.ExecRequest{Argv: []string{"/bin/sh", "-c",
		"echo $$ >pid.tmp; mv pid.tmp pid; while ! test -e held; do sleep 0.01; done"}}, agentclient.ExecIO{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	second, err := f.client.Exec(ctx, agentproto.ExecRequest{Argv: []string{"/bin/sh", "-c",
		"while ! test -e pid; do sleep 0.01; done; exec 7>/proc/$(cat pid)/fd/1; touch held; sleep 30"}}, agentclient.ExecIO{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	st, err := first.Wait()
	if err != nil || !st.OutputHeld || st.Cause != agentproto.CauseExited || time.Since(start) > 10*time.Second {
		t.Errorf("%+v, %v after %v", st, err, time.Since(start))
	}
	second.Cancel()
	if _, err := second.Wait(); err != nil {
		t.Error(err)
	}
}

func TestPanicClosesConnectionOnly(t *testing.T) {
	logged := make(chan string, 16)
	f := newFixture(t, func(c *agent.Config) {
		log := c.Log
		c.Log = func(format string, args ...any) { logged <- format; log(format, args...) }
		c.Shutdown = func() { panic("a bug") }
	})
	if err := f.client.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := f.raw(t) // refused, since it is shutting down, but accepted and closed
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
	// The connection ends only after the panic was logged, but the answer came
	// before.
	select {
	case line := <-logged:
		if !strings.Contains(line, "panic") {
			t.Errorf("log is %q", line)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing was logged")
	}
}

func TestTooManyExecsAreBusy(t *testing.T) {
	f := newFixture(t, nil)
	if err := f.client.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, err := f.client.Exec(context.Background(), agentproto.ExecRequest{Argv: []string{"true"}}, agentclient.ExecIO{})
	if err == nil {
		t.Fatal("an exec started while shutting down")
	}
}
