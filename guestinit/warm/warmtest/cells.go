package warmtest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// cell is one step of a context, and what must come of it.
type cell struct {
	source  string
	status  agentproto.CellStatus
	result  string // "-": none
	out     string
	errHas  string // "": nothing on standard error
	timeout time.Duration
}

var cells = map[string][]cell{
	"python": {
		// What a cell makes lies together: the holes of the heap are filled (thaw_warm/holes.py).
		{source: "max(len({id(b) >> 14 for b in [bytes(n) for _ in range(12)]}) for n in range(16, 400, 16)) <= 2", status: "ok", result: "True"},
		{source: "open('cell.txt', 'w').write('x')\nimport os; os.getcwd()", status: "ok", result: "'/workspace'"},
		{source: "x = 20", status: "ok", result: "-"},
		{source: "x + 1", status: "ok", result: "21"},
		{source: "print('seen')\n'é' * 2", status: "ok", result: "'éé'", out: "seen\n"},
		{source: "def f():\n    return x / 0\nf()", status: "error", result: "-", errHas: "in f\n    return x / 0"},
		{source: "import asyncio\nawait asyncio.sleep(0.01)\nx", status: "ok", result: "20"},
		{source: "while True: pass", status: "interrupted", result: "-", errHas: "KeyboardInterrupt", timeout: 500 * time.Millisecond},
		{source: "import time; time.sleep(60)", status: "interrupted", result: "-", errHas: "KeyboardInterrupt", timeout: 500 * time.Millisecond},
		{source: "syntax error", status: "error", result: "-", errHas: "SyntaxError"},
		{source: "import sys; sys.exit(2)", status: "error", result: "-"},
		{source: "class Odd:\n    def __repr__(self):\n        raise KeyError('repr')\nOdd()", status: "error", result: "-", errHas: "KeyError"},
		{source: "class Text(str):\n    def __getitem__(self, at):\n        return float('nan')\nclass Sly:\n    def __repr__(self):\n        return Text('sly')\nSly()", status: "ok",
			result: "sly"},
		{source: "import subprocess; subprocess.run(['echo', 'child']).returncode", status: "ok", result: "0", out: "child\n"},
		{source: "import os, ctypes\nif os.fork() == 0:\n    print('child'); os._exit(0)\nos.wait()[1]", status: "ok", result: "0"},
		{source: "None", status: "ok", result: "-"},
		{source: "''", status: "ok", result: "''"},
		{source: "x, __name__", status: "ok", result: "(20, '__main__')"},
		// What was loaded before is not counted (thaw_warm/immortal.py), what a program makes is.
		{source: "import sys, json\n[sys.getrefcount(o) > 1 << 31 for o in (json.loads, json.loads.__code__, json.JSONDecoder, f, f.__code__)]", status: "ok",
			result: "[True, True, True, False, False]"},
	},
	"node": {
		{source: "require('fs').writeFileSync('cell.txt', 'x'); process.cwd()", status: "ok", result: "'/workspace'"},
		{source: "let x = 20", status: "ok", result: "-"},
		{source: "x + 1", status: "ok", result: "21"},
		{source: "let x = 5; console.log('seen'); 'é'.repeat(2)", status: "ok", result: "'éé'", out: "seen\n"},
		{source: "function f() { return x.y.z }\nf()", status: "error", result: "-", errHas: "at f (cell-5:1:"},
		{source: "await new Promise((r) => setTimeout(() => r(x), 10))", status: "ok", result: "5"},
		{source: "while (true);", status: "interrupted", result: "-", timeout: 500 * time.Millisecond},
		{source: "await new Promise(() => {})", status: "interrupted", result: "-", timeout: 500 * time.Millisecond},
		{source: "syntax error", status: "error", result: "-", errHas: "SyntaxError"},
		{source: "const { sep } = await import('node:path'); sep", status: "ok", result: "'/'"},
		{source: "require('fs').readFileSync('/dev/null').length", status: "ok", result: "0"},
		{source: "throw 7", status: "error", result: "-", errHas: "Uncaught 7"},
		{source: "({ a: [1, { b: null }], n: -0, big: 12n })", status: "ok", result: "{ a: [ 1, { b: null } ], n: -0, big: 12n }"},
		{source: "require('child_process').execFileSync('echo', ['child'], { stdio: 'inherit' })", status: "ok", result: "null", out: "child\n"},
		{source: "undefined", status: "ok", result: "-"},
		{source: "''", status: "ok", result: "''"},
		{source: "class A { f() { return x } }\nnew A().f()", status: "ok", result: "5"},
	},
}

// endings end a context.
var endings = map[string]string{"python": "import os; os._exit(3)", "node": "process.exit(3)"}

// stubborn heeds no interrupt.
var stubborn = map[string]string{
	"python": "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass",
	"node":   "process.kill(process.pid, 'SIGSTOP')",
}

// large writes more than a cap, and has a result over its bound, or what Node
// shows of it.
var large = map[string]string{"python": "print('y' * 100000)\n'z' * 100000", "node": "console.log('y'.repeat(100000)); 'z'.repeat(100000)"}

func (s *suite) code(t *testing.T, req agentproto.CodeRequest) (agentproto.CellResult, string, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errOut bytes.Buffer
	res, err := s.c.Code(ctx, req, agentclient.ExecIO{Stdout: &out, Stderr: &errOut})
	return res, out.String(), errOut.String(), err
}

func (s *suite) cells(t *testing.T, runtime string) {
	w := s.warm(t, runtime, preload[runtime])
	for _, c := range cells[runtime] {
		res, out, errOut, err := s.code(t, agentproto.CodeRequest{ExecID: w.ExecID, Source: c.source, Timeout: c.timeout, Grace: 10 * time.Second})
		if err != nil {
			t.Fatalf("cell %q: %v", c.source, err)
		}
		result := "-"
		if res.HasResult {
			result = res.Result
		}
		if res.Status != c.status || result != c.result {
			t.Errorf("cell %q: %+v", c.source, res)
		}
		if c.out != "" && out != c.out || res.StdoutBytes != int64(len(out)) {
			t.Errorf("cell %q: output %q, %d bytes", c.source, out, res.StdoutBytes)
		}
		if !strings.Contains(errOut, c.errHas) || c.errHas == "" && errOut != "" {
			t.Errorf("cell %q: standard error %q", c.source, errOut)
		}
	}
	res, out, _, err := s.code(t, agentproto.CodeRequest{ExecID: w.ExecID, Source: large[runtime], StdoutCap: 1000})
	if err != nil || len(out) != 1000 || res.StdoutBytes != 100001 || res.StdoutDropped != 99001 || len(res.Result) < 9000 {
		t.Errorf("large: %d bytes, %v, %+.200v", len(out), err, res)
	}
	t.Run("CancelledContext", func(t *testing.T) { s.cancelled(t, runtime, w.ExecID) })
	if _, _, _, err := s.code(t, agentproto.CodeRequest{ExecID: w.ExecID, Source: endings[runtime]}); !errors.Is(err, agentclient.ErrContextEnded) {
		t.Errorf("end of the context: %v", err)
	}
	w = s.warm(t, runtime, preload[runtime])
	_, _, _, err = s.code(t, agentproto.CodeRequest{ExecID: w.ExecID, Source: stubborn[runtime], Timeout: 300 * time.Millisecond, Grace: 300 * time.Millisecond})
	if !errors.Is(err, agentclient.ErrContextEnded) {
		t.Errorf("stubborn cell: %v", err)
	}
}

// cancelled interrupts a cell by its context, and goes on with the next.
func (s *suite) cancelled(t *testing.T, runtime string, id uint64) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(500*time.Millisecond, cancel)
	endless := map[string]string{"python": "while True: pass", "node": "while (true);"}[runtime]
	res, err := s.c.Code(ctx, agentproto.CodeRequest{ExecID: id, Source: endless, Grace: 10 * time.Second}, agentclient.ExecIO{})
	if err != nil || res.Status != agentproto.CellInterrupted {
		t.Errorf("%+v, %v", res, err)
	}
	if res, _, _, err := s.code(t, agentproto.CodeRequest{ExecID: id, Source: "1 + 1"}); err != nil || res.Result != "2" {
		t.Errorf("%+v, %v", res, err)
	}
}
