// Package warmtest holds the tests of warm interpreters in a guest: that a job
// in one cannot be told from a job in a fresh one (C6), that cells share what
// they define, and that limits hold. They need a client alone.
package warmtest

import (
	"bytes"
	"context"
	"embed"
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

//go:embed testdata
var scripts embed.FS

// patience bounds every request, on slow machines too.
const patience = 2 * time.Minute

// preload keeps the start of a warm Python short where a test starts many; it
// has what makes the difference: libraries with native code, threads, warning
// filters and hooks.
var preload = map[string][]string{
	"python": {
		"numpy", "argparse", "asyncio", "collections", "concurrent.futures", "copy", "csv", "datetime", "decimal",
		"inspect", "json", "logging", "pickle", "random", "re", "secrets", "socket", "ssl", "subprocess", "tempfile", "threading",
		"typing", "unittest", "uuid", "warnings",
	},
}

// command names each runtime's interpreter.
var command = map[string]string{"python": "python3", "node": "/usr/bin/node"}

type suite struct {
	c     *agentclient.Client
	every int
}

// Run runs the cases for the runtimes that the guest's image has: of the scripts that
// are run both ways each every-th, where a machine is too slow for all.
func Run(t *testing.T, c *agentclient.Client, every int, runtimes ...string) {
	s := &suite{c, every}
	for _, r := range runtimes {
		t.Run(r, func(t *testing.T) {
			t.Run("Differential", func(t *testing.T) { s.differential(t, r) })
			t.Run("Cells", func(t *testing.T) { s.cells(t, r) })
			t.Run("Limits", func(t *testing.T) { s.limits(t, r) })
			t.Run("Refusals", func(t *testing.T) { s.refusals(t, r) })
		})
	}
}

// warm starts an interpreter.
func (s *suite) warm(t *testing.T, runtime string, preload []string) agentproto.WarmResult {
	t.Helper()
	return s.warmWith(t, runtime, preload, nil)
}

// warmWith starts an interpreter with an environment.
func (s *suite) warmWith(t *testing.T, runtime string, preload, env []string) agentproto.WarmResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := s.c.Warm(ctx, agentproto.WarmRequest{Runtime: runtime, Preload: preload, Env: env})
	if err != nil {
		t.Fatalf("warm %s: %v", runtime, err)
	}
	return w
}

// end is a finished job.
type end struct {
	agentproto.ExitStatus
	out, err string
	cold     string
}

// stdio returns the streams of a job with an input ("": none).
func stdio(stdin string, out, errOut *bytes.Buffer) agentclient.ExecIO {
	x := agentclient.ExecIO{Stdout: out, Stderr: errOut}
	if stdin != "" {
		x.Stdin = strings.NewReader(stdin)
	}
	return x
}

func (s *suite) exec(t *testing.T, req agentproto.ExecRequest, stdin string) end {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	p, err := s.c.Exec(ctx, req, stdio(stdin, &out, &errOut))
	if err != nil {
		t.Fatalf("exec %q: %v", req.Argv, err)
	}
	return wait(t, p, &out, &errOut)
}

func (s *suite) run(t *testing.T, req agentproto.RunRequest, stdin string) end {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	p, err := s.c.Run(ctx, req, stdio(stdin, &out, &errOut))
	if err != nil {
		t.Fatalf("run %q: %v", req.Argv, err)
	}
	return wait(t, p, &out, &errOut)
}

func wait(t *testing.T, p *agentclient.Process, out, errOut *bytes.Buffer) end {
	t.Helper()
	st, err := p.Wait()
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return end{st, out.String(), errOut.String(), p.Started().Cold}
}

// put copies a runtime's scripts to /workspace/dir and returns their names.
func (s *suite) put(t *testing.T, runtime, dir string) []string {
	t.Helper()
	root := path.Join("testdata", runtime)
	entries, err := fs.ReadDir(scripts, root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		b, err := scripts.ReadFile(path.Join(root, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.c.PutFile(t.Context(), path.Join(dir, e.Name()), 0o644, int64(len(b)), bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.Name(), "helper") {
			names = append(names, e.Name())
		}
	}
	return names
}
