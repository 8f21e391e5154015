package guesttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// basic runs programs and looks at what comes back.
func (s *suite) basic(t *testing.T) {
	ctx := context.Background()
	t.Run("Ping", func(t *testing.T) {
		if err := s.c.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("Info", func(t *testing.T) {
		info, err := s.c.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.Version != agentproto.Version || info.Kernel == "" || info.CPUs < 1 || info.MemTotal < 1<<20 {
			t.Errorf("info is not filled in: %+v", info)
		}
		if s.opts.NoLimits == "" && len(info.Skipped) != 0 {
			t.Errorf("the guest does not enforce %v", info.Skipped)
		}
	})
	t.Run("Usage", func(t *testing.T) {
		u, err := s.c.Usage(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if u.MemTotal <= 0 || u.DiskTotal <= 0 || u.DiskFree > u.DiskTotal {
			t.Errorf("usage is not filled in: %+v", u)
		}
	})
	t.Run("True", func(t *testing.T) {
		r := s.run(t, agentproto.ExecRequest{Argv: []string{"true"}}, "")
		r.want(t, agentproto.CauseExited)
		if r.Code != 0 || r.out != "" || r.err != "" {
			t.Errorf("true: %+v", r)
		}
		if r.Usage.Wall <= 0 || r.Usage.CPU <= 0 {
			t.Errorf("no usage: %+v", r.Usage)
		}
	})
	t.Run("ExitCode", func(t *testing.T) {
		r := s.run(t, sh("exit 42"), "")
		r.want(t, agentproto.CauseExited)
		if r.Code != 42 {
			t.Errorf("code is %d", r.Code)
		}
	})
	t.Run("Stdin", func(t *testing.T) {
		r := s.run(t, agentproto.ExecRequest{Argv: []string{"cat"}}, "one\ntwo\n")
		if r.out != "one\ntwo\n" {
			t.Errorf("cat gave %q", r.out)
		}
	})
	t.Run("Stderr", func(t *testing.T) {
		r := s.run(t, sh("echo out; echo err >&2"), "")
		if r.out != "out\n" || r.err != "err\n" {
			t.Errorf("stdout %q, stderr %q", r.out, r.err)
		}
	})
	t.Run("ReopenStdout", func(t *testing.T) {
		if out := s.shell(t, "echo x >/proc/self/fd/1"); out != "x\n" {
			t.Errorf("got %q", out)
		}
	})
	t.Run("Env", s.env)
	t.Run("Cwd", func(t *testing.T) {
		r := s.run(t, agentproto.ExecRequest{Argv: []string{"pwd"}, Cwd: "/"}, "")
		if r.out != "/\n" {
			t.Errorf("pwd gave %q", r.out)
		}
	})
	t.Run("StartFailures", s.startFailures)
	t.Run("WarmExec", s.warmExec)
	t.Run("Parallel", s.parallel)
}

func (s *suite) env(t *testing.T) {
	r := s.run(t, agentproto.ExecRequest{Argv: []string{"env"}, Env: []string{"A=1", "LANG=C", "E="}}, "")
	var names []string
	for line := range strings.Lines(r.out) {
		names = append(names, strings.TrimSpace(line))
	}
	sort.Strings(names)
	want := []string{"A=1", "E=",
		"GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=67108864",
		"HOME=/workspace", "LANG=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if !slices.Equal(names, want) {
		t.Errorf("environment is %q, want %q", names, want)
	}
}

func (s *suite) startFailures(t *testing.T) {
	s.shell(t, "echo text >plain.txt; chmod 644 plain.txt; printf '#!/no/such/interpreter\\n' >bad.sh; printf garbage >junk; chmod 755 bad.sh junk")
	for _, c := range []struct {
		name string
		req  agentproto.ExecRequest
		want error
	}{
		{"NoSuchName", agentproto.ExecRequest{Argv: []string{"no-such-program"}}, agentproto.ErrNotFound},
		{"NoSuchPath", agentproto.ExecRequest{Argv: []string{"/no/such/program"}}, agentproto.ErrNotFound},
		{"NotExecutable", agentproto.ExecRequest{Argv: []string{"./plain.txt"}}, agentproto.ErrPermission},
		{"Directory", agentproto.ExecRequest{Argv: []string{"/bin/"}}, agentproto.ErrPermission},
		{"NoInterpreter", agentproto.ExecRequest{Argv: []string{"./bad.sh"}}, agentproto.ErrNotFound},
		{"NoFormat", agentproto.ExecRequest{Argv: []string{"./junk"}}, agentproto.ErrNotExecable},
		{"NoSuchCwd", agentproto.ExecRequest{Argv: []string{"true"}, Cwd: "/no/such/dir"}, agentproto.ErrNotFound},
		{"Empty", agentproto.ExecRequest{}, agentproto.ErrBadRequest},
		{"BadEnv", agentproto.ExecRequest{Argv: []string{"true"}, Env: []string{"novalue"}}, agentproto.ErrBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := s.c.Exec(context.Background(), c.req, agentclient.ExecIO{})
			if err == nil {
				_, _ = p.Wait()
				t.Fatal("it started")
			}
			if !errors.Is(err, c.want) {
				t.Errorf("error is %v, want %v", err, c.want)
			}
		})
	}
}

// warmExec measures true over a warm connection, for the log.
func (s *suite) warmExec(t *testing.T) {
	const n = 50
	times := make([]time.Duration, 0, n)
	for range n {
		start := time.Now()
		s.run(t, agentproto.ExecRequest{Argv: []string{"/bin/true"}}, "")
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	t.Logf("exec of true, n %d: min %v, p50 %v, p95 %v, max %v", n, times[0], times[n/2], times[n*95/100], times[n-1])
}

func (s *suite) parallel(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			want := fmt.Sprintf("%d\n", i)
			if r := s.run(t, sh(fmt.Sprintf("cat; echo %d", i)), "x\n"); r.out != "x\n"+want {
				t.Errorf("exec %d gave %q", i, r.out)
			}
		})
	}
	wg.Wait()
}
