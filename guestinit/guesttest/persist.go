package guesttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// persist loses connections of execs that must outlive them.
func (s *suite) persist(t *testing.T) {
	ctx := context.Background()
	t.Run("Attach", s.attach)
	t.Run("EndedBefore", func(t *testing.T) {
		id := s.leave(t, sh("sleep 0.2; echo to fetch; echo err >&2; exit 7"), "")
		time.Sleep(600 * time.Millisecond)
		for _, want := range []string{"to fetch\nerr\n", ""} { // the second time only the status is remembered
			p, out := s.attachTo(t, id)
			st, err := p.Wait()
			if err != nil || st.Code != 7 || st.Cause != agentproto.CauseExited || st.StdoutBytes != 9 || st.StdoutDropped != 0 {
				t.Errorf("%+v, %v", st, err)
			}
			if got := out.String(); len(got) != len(want) || want != "" && !strings.Contains(got, "to fetch\n") {
				t.Errorf("output is %q, want %q", out, want)
			}
		}
	})
	t.Run("TakeOver", func(t *testing.T) {
		first := s.start(t, persistent(sh("echo one; sleep 1; echo two")))
		first.waitFor(t, "one\n")
		p, out := s.attachTo(t, first.ExecID())
		if st, err := first.Wait(); err == nil {
			t.Errorf("the first connection saw the end: %+v", st)
		}
		if st, err := p.Wait(); err != nil || st.Code != 0 {
			t.Errorf("%+v, %v", st, err)
		}
		if out.String() != "two\n" || p.Started().StdoutAt != 4 {
			t.Errorf("output is %q, began at %d", out, p.Started().StdoutAt)
		}
	})
	t.Run("BackPressure", s.persistBackPressure)
	t.Run("Input", s.persistInput)
	t.Run("Cancel", func(t *testing.T) {
		id := s.leave(t, sh("echo up; sleep 60"), "up\n")
		p, _ := s.attachTo(t, id)
		p.Cancel()
		if st, err := p.Wait(); err != nil || st.Cause != agentproto.CauseCancelled {
			t.Errorf("%+v, %v", st, err)
		}
	})
	t.Run("Timeout", func(t *testing.T) {
		req := sh("echo up; sleep 60")
		req.Timeout = 300 * time.Millisecond
		id := s.leave(t, req, "up\n")
		p, _ := s.attachTo(t, id)
		if st, err := p.Wait(); err != nil || st.Cause != agentproto.CauseTimeout {
			t.Errorf("%+v, %v", st, err)
		}
	})
	t.Run("Unknown", func(t *testing.T) {
		if _, err := s.c.Attach(ctx, 1<<60, agentclient.ExecIO{}); !errors.Is(err, agentproto.ErrNotFound) {
			t.Errorf("error is %v", err)
		}
		p := s.start(t, sh("echo up; sleep 60")) // not persistent
		p.waitFor(t, "up\n")
		if _, err := s.c.Attach(ctx, p.ExecID(), agentclient.ExecIO{}); !errors.Is(err, agentproto.ErrNotFound) {
			t.Errorf("error is %v", err)
		}
		p.Cancel()
		_, _ = p.Wait()
	})
	t.Run("ManyUnfetched", s.manyUnfetched)
}

func persistent(req agentproto.ExecRequest) agentproto.ExecRequest {
	req.Persist = true
	return req
}

// leave starts a persistent exec, waits for its first output and drops its
// connection.
func (s *suite) leave(t *testing.T, req agentproto.ExecRequest, first string) uint64 {
	t.Helper()
	p := s.start(t, persistent(req))
	p.waitFor(t, first)
	p.Abandon()
	if st, err := p.Wait(); err == nil {
		t.Fatalf("the exec ended: %+v", st)
	}
	return p.ExecID()
}

func (s *suite) attachTo(t *testing.T, id uint64) (*agentclient.Process, *buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	out := new(buffer)
	p, err := s.c.Attach(ctx, id, agentclient.ExecIO{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	return p, out
}

func (s *suite) attach(t *testing.T) {
	s.shell(t, "rm -f go-on")
	id := s.leave(t, sh("echo begin; while ! test -e go-on; do sleep 0.05; done; echo rest; echo err >&2; exit 3"), "begin\n")
	s.shell(t, "touch go-on") // it goes on without anybody
	p, out := s.attachTo(t, id)
	st, err := p.Wait()
	if err != nil || st.Code != 3 || st.StdoutBytes != 11 {
		t.Errorf("%+v, %v", st, err)
	}
	if !strings.Contains(out.String(), "rest\n") || !strings.Contains(out.String(), "err\n") {
		t.Errorf("output is %q", out)
	}
	if at := p.Started().StdoutAt; at != 6 {
		t.Errorf("stdout went on at %d", at)
	}
}

// persistBackPressure: nothing is read of an exec that nobody is attached to
// but what fits into its pipe and one frame, and then nothing is lost.
func (s *suite) persistBackPressure(t *testing.T) {
	const lines = 200_000 // of 10 bytes: more than every buffer
	script := fmt.Sprintf("i=0; while [ $i -lt 20 ]; do printf '%%09d\\n' $i; i=$((i+1)); done; head -c %d /dev/zero; echo end", lines*10)
	id := s.leave(t, sh(script), "000000000\n")
	time.Sleep(200 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out bytes.Buffer
	p, err := s.c.Attach(ctx, id, agentclient.ExecIO{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	st, err := p.Wait()
	const total = 200 + lines*10 + 4
	if err != nil || st.Code != 0 || st.StdoutBytes != total || st.StdoutDropped != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if at := p.Started().StdoutAt; at+int64(out.Len()) != total {
		t.Errorf("went on at %d with %d bytes of %d", at, out.Len(), total)
	}
}

// persistInput: standard input goes on where it was.
func (s *suite) persistInput(t *testing.T) {
	req := persistent(sh("read a; echo a=$a; read b; echo b=$b; cat | wc -c"))
	out := new(buffer)
	in, feed := newFeed()
	p, err := s.c.Exec(context.Background(), req, agentclient.ExecIO{Stdin: in, Stdout: out})
	if err != nil {
		t.Fatal(err)
	}
	feed <- "one\n"
	(&process{p, out}).waitFor(t, "a=one\n")
	p.Abandon()
	close(feed)
	if _, err := p.Wait(); err == nil {
		t.Fatal("the exec ended")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const rest = 1 << 20 // beyond the window: credit must come
	out = new(buffer)
	p, err = s.c.Attach(ctx, p.ExecID(), agentclient.ExecIO{
		Stdin: strings.NewReader("two\n" + strings.Repeat("x", rest)), Stdout: out,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := p.Started(); s.StdinAt != 4 || !s.StdinOpen || s.StdinCredit == 0 {
		t.Errorf("started: %+v", s)
	}
	st, err := p.Wait()
	if err != nil || st.Code != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if got := strings.Fields(out.String()); strings.Join(got, " ") != fmt.Sprintf("b=two %d", rest) {
		t.Errorf("output is %q", got)
	}
}

// feed is a reader of what is sent to its channel.
type feed struct {
	ch   chan string
	rest string
}

func newFeed() (*feed, chan string) {
	f := &feed{ch: make(chan string)}
	return f, f.ch
}

func (f *feed) Read(b []byte) (int, error) {
	if f.rest == "" {
		s, ok := <-f.ch
		if !ok {
			return 0, errors.New("nothing more")
		}
		f.rest = s
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// manyUnfetched: the output of the execs that ended longest ago goes first,
// their status stays.
func (s *suite) manyUnfetched(t *testing.T) {
	const n = 40 // more than are kept
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = s.leave(t, sh(fmt.Sprintf("sleep 0.2; echo %d; exit %d", i, i)), "")
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		u, err := s.c.Usage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if u.Execs <= 32 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d execs are kept", u.Execs)
		}
	}
	lost := 0
	for i, id := range ids {
		p, out := s.attachTo(t, id)
		st, err := p.Wait()
		if err != nil || st.Code != int32(i) {
			t.Errorf("exec %d: %+v, %v", i, st, err)
		}
		switch {
		case st.OutputLost && out.String() == "":
			lost++
		case st.OutputLost || out.String() != fmt.Sprintf("%d\n", i):
			t.Errorf("exec %d: output %q, lost %v", i, out, st.OutputLost)
		}
	}
	if lost == 0 || lost > n-32 {
		t.Errorf("output of %d was lost", lost)
	}
}
