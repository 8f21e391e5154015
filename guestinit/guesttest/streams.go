package guesttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// process is a running exec whose output is collected.
type process struct {
	*agentclient.Process
	out *buffer
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer // protected by mu
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (s *suite) start(t *testing.T, req agentproto.ExecRequest) *process {
	t.Helper()
	out := new(buffer)
	p, err := s.c.Exec(context.Background(), req, agentclient.ExecIO{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	return &process{p, out}
}

// waitFor waits until the output starts with want.
func (p *process) waitFor(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(patience); !strings.HasPrefix(p.out.String(), want); {
		if time.Now().After(end) {
			p.Cancel()
			t.Fatalf("output is %q, want %q", p.out.String(), want)
		}
		time.Sleep(time.Millisecond)
	}
}

// streams checks output and input: order, caps, back-pressure, floods.
func (s *suite) streams(t *testing.T) {
	t.Run("LargeEcho", func(t *testing.T) {
		in := strings.Repeat("0123456789abcde\n", 256<<10) // 4 MiB: more than every window
		r := s.run(t, agentproto.ExecRequest{Argv: []string{"cat"}}, in)
		if r.out != in {
			t.Errorf("%d bytes came back changed as %d", len(in), len(r.out))
		}
	})
	t.Run("StdinUnread", func(t *testing.T) {
		r := s.run(t, sh("exit 3"), strings.Repeat("x", 1<<20))
		if r.Code != 3 {
			t.Errorf("%+v", r.ExitStatus)
		}
	})
	t.Run("StdinClosedByJob", func(t *testing.T) {
		r := s.run(t, sh("exec <&-; sleep 0.2; exit 4"), strings.Repeat("x", 1<<20))
		if r.Code != 4 {
			t.Errorf("%+v", r.ExitStatus)
		}
	})
	t.Run("SignalPastFullStdin", func(t *testing.T) {
		// The job reads nothing; control frames must get through all the same.
		p, err := s.c.Exec(context.Background(), sh("sleep 60"), agentclient.ExecIO{Stdin: zeros{}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		if err := p.Signal(15); err != nil {
			t.Fatal(err)
		}
		st, err := p.Wait()
		if err != nil || st.Signal != 15 {
			t.Errorf("%+v, %v", st, err)
		}
	})
	t.Run("UnderCap", func(t *testing.T) {
		req := sh("echo hello")
		req.StdoutCap = 100
		if r := s.run(t, req, ""); r.out != "hello\n" || r.StdoutDropped != 0 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("HeadAndTail", s.headAndTail)
	t.Run("Flood", func(t *testing.T) {
		const total = 64 << 20
		req := sh(fmt.Sprintf("head -c %d /dev/zero; head -c %d /dev/zero >&2", total, total))
		req.StdoutCap, req.StderrCap = 4096, 1<<20
		r := s.run(t, req, "")
		if len(r.out) != 4096 || r.StdoutBytes != total || r.StdoutDropped != total-4096 {
			t.Errorf("stdout: %d kept, %d written, %d dropped", len(r.out), r.StdoutBytes, r.StdoutDropped)
		}
		if len(r.err) != 1<<20 || r.StderrDropped != total-1<<20 {
			t.Errorf("stderr: %d kept, %d dropped", len(r.err), r.StderrDropped)
		}
	})
	t.Run("BackPressure", s.backPressure)
	t.Run("WriterFails", func(t *testing.T) {
		p, err := s.c.Exec(context.Background(), sh("while :; do echo x; done"), agentclient.ExecIO{Stdout: failing{}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(); err == nil || !strings.Contains(err.Error(), "no room") {
			t.Errorf("error is %v", err)
		}
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, fmt.Errorf("no room") }

func (s *suite) headAndTail(t *testing.T) {
	// 10000 lines of 10 bytes; 1000 bytes are kept: the first 50 and the last
	// 50 lines.
	req := sh("i=0; while [ $i -lt 10000 ]; do printf '%09d\\n' $i; i=$((i+1)); done")
	req.StdoutCap = 1000
	r := s.run(t, req, "")
	var want strings.Builder
	for i := range 50 {
		fmt.Fprintf(&want, "%09d\n", i)
	}
	for i := 9950; i < 10000; i++ {
		fmt.Fprintf(&want, "%09d\n", i)
	}
	if r.out != want.String() || r.StdoutDropped != 99000 || r.StdoutBytes != 100000 {
		t.Errorf("kept %d bytes, dropped %d of %d: %.40q…", len(r.out), r.StdoutDropped, r.StdoutBytes, r.out)
	}
}

// backPressure: a host that does not read blocks the job, and nothing is lost.
func (s *suite) backPressure(t *testing.T) {
	r, w := io.Pipe()
	p, err := s.c.Exec(context.Background(), sh("head -c 8388608 /dev/zero; echo end >&2"), agentclient.ExecIO{Stdout: w, Stderr: w})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = p.Wait()
		w.Close()
	}()
	select {
	case <-ended:
		t.Fatal("8 MiB went somewhere while nobody read")
	case <-time.After(300 * time.Millisecond):
	}
	n, err := io.Copy(io.Discard, r)
	if err != nil || n != 8388608+4 {
		t.Errorf("read %d bytes, %v", n, err)
	}
	<-ended
}
