package agentclient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// guest plays an agent: it answers every request with the same bytes.
func guest(t testing.TB, answer []byte) *agentclient.Client {
	t.Helper()
	c := agentclient.New(func(context.Context) (net.Conn, error) {
		host, far := net.Pipe()
		go func() {
			defer far.Close()
			go io.Copy(io.Discard, far)
			_, _ = far.Write(answer)
		}()
		return host, nil
	})
	t.Cleanup(func() { c.Close() })
	return c
}

type wire struct {
	t testing.TB
	b []byte
}

func (w *wire) msg(t agentproto.FrameType, v any) *wire {
	b, err := agentproto.AppendMessage(w.b, t, v)
	if err != nil {
		w.t.Fatal(err)
	}
	w.b = b
	return w
}

func (w *wire) data(t agentproto.FrameType, flags uint8, b []byte) *wire {
	out, err := agentproto.AppendFrame(w.b, t, flags, b)
	if err != nil {
		w.t.Fatal(err)
	}
	w.b = out
	return w
}

func TestHostileGuest(t *testing.T) {
	ctx := context.Background()
	exec := func(req agentproto.ExecRequest) func(c *agentclient.Client) error {
		return func(c *agentclient.Client) error {
			p, err := c.Exec(ctx, req, agentclient.ExecIO{Stdin: strings.NewReader("x")})
			if err != nil {
				return err
			}
			_, err = p.Wait()
			return err
		}
	}
	run := agentproto.ExecRequest{Argv: []string{"x"}}
	capped := agentproto.ExecRequest{Argv: []string{"x"}, StdoutCap: 4}
	file := agentproto.FileInfo{Path: "a", Type: agentproto.TypeFile, Size: 1}
	list := func(c *agentclient.Client) error { _, err := c.ListFiles(ctx, "", 2); return err }
	get := func(c *agentclient.Client) error { _, err := c.GetFile(ctx, "a", io.Discard, 4); return err }
	info := func(c *agentclient.Client) error { _, err := c.Info(ctx); return err }
	attach := func(stdio agentclient.ExecIO) func(c *agentclient.Client) error {
		return func(c *agentclient.Client) error {
			p, err := c.Attach(ctx, 7, stdio)
			if err != nil {
				return err
			}
			_, err = p.Wait()
			return err
		}
	}
	freeze := func(c *agentclient.Client) error {
		_, err := c.Freeze(ctx, agentproto.FreezeRequest{})
		return err
	}
	generation := func(c *agentclient.Client) error {
		_, err := c.SetGeneration(ctx, newGeneration(7))
		return err
	}
	new := func() *wire { return &wire{t: t} }
	started := func() *wire { return new().msg(agentproto.FrameStarted, agentproto.Started{PID: 1}) }
	for _, c := range []struct {
		name   string
		answer *wire
		call   func(c *agentclient.Client) error
		want   error
	}{
		{"silence", new(), info, io.EOF},
		{"garbage", &wire{b: []byte("HTTP/1.1 400 Bad Request")}, info, agentproto.ErrProtocol},
		{"wrong frame", new().data(agentproto.FrameStdout, 0, nil), info, agentproto.ErrProtocol},
		{"bad info", new().msg(agentproto.FrameOK, agentproto.Info{CPUs: -1}), info, agentproto.ErrProtocol},
		{"empty info", new().msg(agentproto.FrameOK, nil), info, agentproto.ErrProtocol},
		{"bad error", new().msg(agentproto.FrameError, agentproto.Error{}), info, agentproto.ErrProtocol},
		{"changed ping", new().msg(agentproto.FrameOK, agentproto.Ping{Nonce: 1}), func(c *agentclient.Client) error { return c.Ping(ctx) }, agentproto.ErrProtocol},
		{"exec not started", new().msg(agentproto.FrameExit, agentproto.ExitStatus{Cause: agentproto.CauseExited}), exec(run), agentproto.ErrProtocol},
		{"exec lost", started(), exec(run), io.EOF},
		{"unknown cause", started().msg(agentproto.FrameExit, agentproto.ExitStatus{Cause: "luck"}), exec(run), agentproto.ErrProtocol},
		{"output over cap", started().data(agentproto.FrameStdout, 0, []byte("12345")), exec(capped), agentproto.ErrProtocol},
		{"credit over window", started().data(agentproto.FrameStdinCredit, 0, []byte{0xff, 0xff, 0xff, 0xff}), exec(run), agentproto.ErrProtocol},
		{"short credit", started().data(agentproto.FrameStdinCredit, 0, []byte{1}), exec(run), agentproto.ErrProtocol},
		{"started twice", started().msg(agentproto.FrameStarted, agentproto.Started{PID: 1}), exec(run), agentproto.ErrProtocol},
		{"too many entries", new().msg(agentproto.FrameEntries, agentproto.Entries{Files: []agentproto.FileInfo{file, file, file}}), list, agentproto.ErrProtocol},
		{"path upwards", new().msg(agentproto.FrameEntries, agentproto.Entries{Files: []agentproto.FileInfo{{Path: "../a", Type: agentproto.TypeFile}}}), list, agentproto.ErrProtocol},
		{"file over max", new().data(agentproto.FrameFileData, 0, []byte("12345")), get, agentproto.ErrProtocol},
		{"file of other size", new().data(agentproto.FrameFileData, 0, []byte("12")).msg(agentproto.FrameOK, file), get, agentproto.ErrProtocol},
		{"file of other name", new().msg(agentproto.FrameOK, agentproto.FileInfo{Path: "b", Type: agentproto.TypeFile}), get, agentproto.ErrProtocol},
		{"early ok of put", new().msg(agentproto.FrameOK, nil), func(c *agentclient.Client) error {
			return c.PutFile(ctx, "a", 0o600, -1, &slowReader{})
		}, agentproto.ErrProtocol},
		{"attach not started", new().msg(agentproto.FrameOK, nil), attach(agentclient.ExecIO{}), agentproto.ErrProtocol},
		{"attach to another", started().msg(agentproto.FrameExit, agentproto.ExitStatus{Cause: agentproto.CauseExited}), attach(agentclient.ExecIO{}), agentproto.ErrProtocol},
		{"attach credit over window", new().msg(agentproto.FrameStarted, agentproto.Started{ExecID: 7, StdinOpen: true, StdinCredit: 1 << 31}), attach(agentclient.ExecIO{}), agentproto.ErrProtocol},
		{"attach output over cap", new().msg(agentproto.FrameStarted, agentproto.Started{ExecID: 7}).data(agentproto.FrameStderr, 0, []byte("12345")),
			attach(agentclient.ExecIO{StderrMax: 4}), agentproto.ErrProtocol},
		{"freeze in negative time", new().msg(agentproto.FrameOK, agentproto.FreezeResult{Took: -1}), freeze, agentproto.ErrProtocol},
		{"freeze timeout", new().msg(agentproto.FrameError, agentproto.Error{Code: agentproto.CodeFreezeTimeout}), freeze, agentproto.ErrFreezeTimeout},
		{"another generation", new().msg(agentproto.FrameOK, agentproto.GenerationResult{Number: 6}), generation, agentproto.ErrProtocol},
		{"no generation", new().msg(agentproto.FrameOK, nil), generation, agentproto.ErrProtocol},
		{"stale generation", new().msg(agentproto.FrameError, agentproto.Error{Code: agentproto.CodeStale}), generation, agentproto.ErrStale},
		{"generation lost", new(), generation, io.EOF},
		{"wrong answer to thaw", new().msg(agentproto.FrameStarted, agentproto.Started{}), func(c *agentclient.Client) error { return c.Thaw(ctx) }, agentproto.ErrProtocol},
		{"reported error", new().msg(agentproto.FrameError, agentproto.Error{Code: agentproto.CodeNoSpace}), list, agentproto.ErrNoSpace},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.call(guest(t, c.answer.b)); !errors.Is(err, c.want) {
				t.Errorf("error is %v, want %v", err, c.want)
			}
		})
	}
}

func newGeneration(n uint64) agentproto.Generation {
	return agentproto.Generation{
		Number: n, Seed: make([]byte, agentproto.SeedSize), Wall: time.Now().UnixNano(), Hostname: "h", MachineID: make([]byte, agentproto.MachineIDSize),
	}
}

// slowReader gives the answer time to arrive.
type slowReader struct{ n int }

func (r *slowReader) Read(b []byte) (int, error) {
	if r.n++; r.n > 200 {
		return 0, io.EOF
	}
	time.Sleep(time.Millisecond)
	return len(b), nil
}

func TestBadRequestsAreNotSent(t *testing.T) {
	c := agentclient.New(func(context.Context) (net.Conn, error) {
		t.Error("it dialled")
		return nil, errors.New("no")
	})
	ctx := context.Background()
	_, execErr := c.Exec(ctx, agentproto.ExecRequest{}, agentclient.ExecIO{})
	_, getErr := c.GetFile(ctx, "../x", io.Discard, 1)
	_, listErr := c.ListFiles(ctx, "", 0)
	_, freezeErr := c.Freeze(ctx, agentproto.FreezeRequest{Wait: -1})
	_, generationErr := c.SetGeneration(ctx, newGeneration(0))
	for _, err := range []error{execErr, getErr, listErr, freezeErr, generationErr, c.PutFile(ctx, "/x", 0, 0, nil)} {
		if !errors.Is(err, agentproto.ErrBadRequest) {
			t.Errorf("error is %v", err)
		}
	}
}

func TestContextEndsRequest(t *testing.T) {
	c := agentclient.New(func(context.Context) (net.Conn, error) {
		host, far := net.Pipe()
		go io.Copy(io.Discard, far) // never answers
		return host, nil
	})
	for name, call := range map[string]func(ctx context.Context) error{
		"info": func(ctx context.Context) error { _, err := c.Info(ctx); return err },
		"exec": func(ctx context.Context) error {
			_, err := c.Exec(ctx, agentproto.ExecRequest{Argv: []string{"x"}}, agentclient.ExecIO{})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: error is %v", name, err)
		}
		cancel()
	}
}

func TestClosedClient(t *testing.T) {
	c := guest(t, nil)
	c.Close()
	if _, err := c.Info(context.Background()); !errors.Is(err, agentclient.ErrClosed) {
		t.Errorf("error is %v", err)
	}
}

func TestConnectionIsReused(t *testing.T) {
	dials := 0
	c := agentclient.New(func(context.Context) (net.Conn, error) {
		dials++
		host, far := net.Pipe()
		go func() {
			r := agentproto.NewReader(far)
			for {
				f, err := r.Next()
				if err != nil {
					return
				}
				b, _ := agentproto.AppendFrame(nil, agentproto.FrameOK, 0, bytes.Clone(f.Payload))
				_, _ = far.Write(b)
			}
		}()
		return host, nil
	})
	for range 3 {
		if err := c.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections for 3 requests", dials)
	}
	c.CloseIdle()
	if err := c.Ping(context.Background()); err != nil || dials != 2 {
		t.Errorf("%v after %d connections", err, dials)
	}
}

// FuzzGuest gives the client arbitrary bytes from a guest.
func FuzzGuest(f *testing.F) {
	w := func() *wire { return &wire{t: f} }
	f.Add(w().msg(agentproto.FrameOK, agentproto.Info{Version: 1}).b)
	f.Add(w().msg(agentproto.FrameStarted, agentproto.Started{PID: 1}).
		data(agentproto.FrameStdout, 0, []byte("out")).data(agentproto.FrameStdinCredit, 0, []byte{0, 0, 0, 0}).
		msg(agentproto.FrameExit, agentproto.ExitStatus{Cause: agentproto.CauseExited}).b)
	f.Add(w().msg(agentproto.FrameEntries, agentproto.Entries{Files: []agentproto.FileInfo{{Path: "a", Type: agentproto.TypeDir}}}).
		msg(agentproto.FrameOK, agentproto.ListEnd{}).b)
	f.Add(w().data(agentproto.FrameFileData, 0, []byte("abc")).
		msg(agentproto.FrameOK, agentproto.FileInfo{Path: "a", Type: agentproto.TypeFile, Size: 3}).b)
	f.Add(w().msg(agentproto.FrameError, agentproto.Error{Code: agentproto.CodeBusy}).b)
	f.Add(w().msg(agentproto.FrameOK, agentproto.FreezeResult{Took: 5, FreeBytes: 7}).b)
	f.Add(w().msg(agentproto.FrameOK, agentproto.GenerationResult{Number: 7, Wall: 5}).b)
	f.Add(w().msg(agentproto.FrameStarted, agentproto.Started{ExecID: 7, StdoutAt: 5, StdinOpen: true, StdinCredit: 3}).
		data(agentproto.FrameStderr, 0, []byte("err")).
		msg(agentproto.FrameExit, agentproto.ExitStatus{Cause: agentproto.CauseExited, OutputLost: true}).b)
	f.Fuzz(func(t *testing.T, answer []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c := guest(t, answer)
		_, _ = c.Info(ctx)
		if files, _ := c.ListFiles(ctx, "", 3); len(files) > 3 {
			t.Fatalf("%d files of 3", len(files))
		}
		var out bytes.Buffer
		if _, _ = c.GetFile(ctx, "a", &out, 8); out.Len() > 8 {
			t.Fatalf("%d bytes of 8", out.Len())
		}
		out.Reset()
		p, err := c.Exec(ctx, agentproto.ExecRequest{Argv: []string{"x"}, StdoutCap: 8}, agentclient.ExecIO{
			Stdin: strings.NewReader("input"), Stdout: &out,
		})
		if err == nil {
			_, _ = p.Wait()
		}
		if out.Len() > 8 {
			t.Fatalf("%d bytes of output, cap 8", out.Len())
		}
		out.Reset()
		if p, err := c.Attach(ctx, 7, agentclient.ExecIO{Stdin: strings.NewReader("input"), Stdout: &out, StdoutMax: 8}); err == nil {
			_, _ = p.Wait()
		}
		if out.Len() > 8 {
			t.Fatalf("%d bytes of output attached, cap 8", out.Len())
		}
		_, _ = c.Freeze(ctx, agentproto.FreezeRequest{})
		if r, err := c.SetGeneration(ctx, newGeneration(7)); err == nil && r.Number != 7 {
			t.Fatalf("generation %d was acknowledged", r.Number)
		}
		_ = c.Thaw(ctx)
	})
}
