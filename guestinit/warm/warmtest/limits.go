package warmtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentproto"
)

// programs of the limit tests, by runtime.
var programs = map[string]map[string]string{
	"python": {
		"spin":   "while True: pass",
		"hog":    "b = []\nwhile True: b.append(bytearray(1 << 20))",
		"file":   "open('/workspace/big', 'wb').write(b'x' * (4 << 20))",
		"limits": "import resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_FSIZE)[0])",
		"fork":   "import os, time\nwhile True:\n    if os.fork() == 0: time.sleep(30)",
		"print":  "print('x' * 100000)",
	},
	"node": {
		"spin":   "while (true);",
		"hog":    "const b = []; while (true) b.push(Buffer.alloc(1 << 20, 1));",
		"file":   "require('fs').writeFileSync('/workspace/big', Buffer.alloc(4 << 20))",
		"limits": "console.log(require('child_process').execSync('ulimit -n; ulimit -f').toString())",
		"fork":   "const c = require('child_process'); for (;;) { const r = c.spawnSync('true'); if (r.error) throw r.error; c.spawn('sleep', ['30']); }",
		"print":  "console.log('x'.repeat(100000))",
	},
}

func (s *suite) limits(t *testing.T, runtime string) {
	run := func(t *testing.T, name string, req agentproto.RunRequest) end {
		t.Helper()
		file := "limit-" + name + map[string]string{"python": ".py", "node": ".js"}[runtime]
		text := programs[runtime][name]
		if err := s.c.PutFile(t.Context(), file, 0o644, int64(len(text)), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		req.ExecID = s.warm(t, runtime, preload[runtime]).ExecID
		req.Argv = []string{command[runtime], file}
		return s.run(t, req, "")
	}
	for _, c := range []struct {
		name  string
		req   agentproto.RunRequest
		cause agentproto.Cause
	}{
		{"spin", agentproto.RunRequest{Timeout: 300 * time.Millisecond, Grace: 100 * time.Millisecond}, agentproto.CauseTimeout},
		{"spin", agentproto.RunRequest{Limits: agentproto.Limits{CPUSeconds: 1}}, agentproto.CauseCPUTime},
		{"hog", agentproto.RunRequest{Limits: agentproto.Limits{MemoryBytes: 160 << 20}}, agentproto.CauseOOM},
		{"file", agentproto.RunRequest{Limits: agentproto.Limits{FileSizeBytes: 1 << 20}}, agentproto.CauseFileSize},
		{"fork", agentproto.RunRequest{Limits: agentproto.Limits{Pids: 20}}, agentproto.CausePidsExhausted},
	} {
		t.Run(c.name+"/"+string(c.cause), func(t *testing.T) {
			got := run(t, c.name, c.req)
			if got.Cause != c.cause || got.cold != "" {
				t.Errorf("cause %s (code %d, signal %d, cold %q): %.300s", got.Cause, got.Code, got.Signal, got.cold, got.err)
			}
			if c.cause == agentproto.CauseCPUTime && (got.Usage.CPU < 500*time.Millisecond || got.Usage.CPU > 4*time.Second) {
				t.Errorf("processor time %v", got.Usage.CPU)
			}
		})
	}
	t.Run("Rlimits", func(t *testing.T) {
		got := run(t, "limits", agentproto.RunRequest{Limits: agentproto.Limits{OpenFiles: 99, FileSizeBytes: 1 << 20}})
		if !strings.Contains(got.out, "99") || got.Code != 0 {
			t.Errorf("limits are %q (%+v, %s)", got.out, got.ExitStatus, got.err)
		}
	})
	t.Run("AddressSpace", func(t *testing.T) {
		got := run(t, "print", agentproto.RunRequest{Limits: agentproto.Limits{AddressSpaceBytes: 64 << 30}})
		if got.cold != "limit on address space" {
			t.Errorf("cold because of %q", got.cold)
		}
	})
	t.Run("Caps", func(t *testing.T) {
		got := run(t, "print", agentproto.RunRequest{StdoutCap: 100})
		if len(got.out) != 100 || got.StdoutBytes != 100001 || got.StdoutDropped != 99901 {
			t.Errorf("%d bytes, %+v", len(got.out), got.ExitStatus)
		}
	})
}

// refusals are requests that no interpreter can follow.
func (s *suite) refusals(t *testing.T, runtime string) {
	w := s.warm(t, runtime, preload[runtime])
	argv := []string{command[runtime], "x"}
	fails := func(what string, want error, req agentproto.RunRequest) {
		t.Helper()
		if p, err := s.c.Run(t.Context(), req, stdio("", nil, nil)); !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				_, _ = p.Wait()
			}
		}
	}
	fails("no interpreter", agentproto.ErrNotFound, agentproto.RunRequest{ExecID: 1 << 40, Argv: argv})
	fails("no directory", agentproto.ErrNotFound, agentproto.RunRequest{ExecID: w.ExecID, Argv: argv, Cwd: "/no/such"})
	fails("forbidden directory", agentproto.ErrPermission, agentproto.RunRequest{ExecID: w.ExecID, Argv: argv, Cwd: "/root"})
	// It is as it was.
	if res, _, _, err := s.code(t, agentproto.CodeRequest{ExecID: w.ExecID, Source: "1 + 1"}); err != nil || res.Result != "2" {
		t.Errorf("%+v, %v", res, err)
	}
	fails("a context", agentproto.ErrBadRequest, agentproto.RunRequest{ExecID: w.ExecID, Argv: argv})
	if _, err := s.c.Warm(t.Context(), agentproto.WarmRequest{Runtime: "perl"}); !errors.Is(err, agentproto.ErrBadRequest) {
		t.Errorf("perl: %v", err)
	}
}
