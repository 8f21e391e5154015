// Package guesttest holds the integration tests of the agent. They need a
// client and nothing else, so the same cases run against an agent on the host
// (over a Unix socket, with what the host can enforce) and in a real guest.
//
// The guest needs /bin/sh and the usual small tools; busybox will do.
package guesttest

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// Options say what the machine under test can do.
type Options struct {
	// NoLimits names why cgroup limits are not enforced; "" requires them.
	NoLimits string
	// NoMachine names why the cases about the machine itself (mounts, /dev,
	// sysctls, a small disk) cannot run; "" requires them.
	NoMachine string
	// Shutdown ends the machine at last and checks that the agent agrees.
	Shutdown bool
}

// suite is one run.
type suite struct {
	c    *agentclient.Client
	opts Options
}

// Run runs every case as a subtest.
func Run(t *testing.T, c *agentclient.Client, opts Options) {
	s := &suite{c: c, opts: opts}
	for _, g := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Basic", s.basic},
		{"Isolation", s.isolation},
		{"Seccomp", s.seccomp},
		{"Machine", s.machine},
		{"Rlimits", s.rlimits},
		{"CgroupLimits", s.cgroupLimits},
		{"Ends", s.ends},
		{"Streams", s.streams},
		{"Files", s.files},
		{"DiskFull", s.diskFull},
		{"Reaping", s.reaping},
		{"Persist", s.persist},
		{"Checkpoint", s.checkpoint},
	} {
		t.Run(g.name, g.run)
	}
	if opts.Shutdown {
		t.Run("Shutdown", s.shutdown)
	}
}

func (s *suite) needLimits(t *testing.T) {
	t.Helper()
	if s.opts.NoLimits != "" {
		t.Skipf("cgroup limits: %s", s.opts.NoLimits)
	}
}

func (s *suite) needMachine(t *testing.T) {
	t.Helper()
	if s.opts.NoMachine != "" {
		t.Skipf("machine: %s", s.opts.NoMachine)
	}
}

// needPython skips a case that an image without Python cannot run.
func (s *suite) needPython(t *testing.T) {
	t.Helper()
	if r := s.run(t, sh("command -v python3"), ""); r.Code != 0 {
		t.Skip("no python3 in this image")
	}
}

// result is a finished exec.
type result struct {
	agentproto.ExitStatus
	out, err string
}

// patience bounds every exec of the suite, on slow machines too.
const patience = 90 * time.Second

// run runs a request with a standard input to its end.
func (s *suite) run(t *testing.T, req agentproto.ExecRequest, stdin string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	stdio := agentclient.ExecIO{Stdout: &out, Stderr: &errOut}
	if stdin != "" {
		stdio.Stdin = strings.NewReader(stdin)
	}
	p, err := s.c.Exec(ctx, req, stdio)
	if err != nil {
		t.Fatalf("exec %q: %v", req.Argv, err)
	}
	st, err := p.Wait()
	if err != nil {
		t.Fatalf("wait for %q: %v", req.Argv, err)
	}
	return result{st, out.String(), errOut.String()}
}

// sh makes a request that runs a script.
func sh(script string) agentproto.ExecRequest {
	return agentproto.ExecRequest{Argv: []string{"/bin/sh", "-c", script}}
}

// shell runs a script and requires it to succeed.
func (s *suite) shell(t *testing.T, script string) string {
	t.Helper()
	r := s.run(t, sh(script), "")
	if r.Code != 0 || r.Cause != agentproto.CauseExited {
		t.Fatalf("script %q: code %d, signal %d, cause %s, stderr %q", script, r.Code, r.Signal, r.Cause, r.err)
	}
	return r.out
}

// want checks how an exec ended.
func (r result) want(t *testing.T, cause agentproto.Cause) {
	t.Helper()
	if r.Cause != cause {
		t.Errorf("cause is %s, want %s (code %d, signal %d, stdout %.200q, stderr %.200q)", r.Cause, cause, r.Code, r.Signal, r.out, r.err)
	}
}
