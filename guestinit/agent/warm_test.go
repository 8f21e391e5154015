package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// fakes are interpreters in shell, with the helpers say (one frame) and hear
// (one frame, thrown away). What they do is told by their name.
var fakes = map[string]string{
	"exits":    `echo oh no >&2; exit 3`,
	"silent":   `sleep 60`,
	"garbage":  `printf 'garbage that is no frame at all' >&3; sleep 60`,
	"long":     `printf '\377\377\377\377' >&3; sleep 60`,
	"other":    `say '{"op":"ready","runtime":"node"}'; sleep 60`,
	"dies":     `say '{"op":"ready","runtime":"python"}'; exit 1`,
	"floods":   `say '{"op":"ready","runtime":"python"}'; hear; while :; do say '{"op":"generation","number":0}'; done`,
	"mute":     `say '{"op":"ready","runtime":"python"}'; hear; exec 3>&-; sleep 60`,
	"wrong":    `say '{"op":"ready","runtime":"python"}'; hear; say '{"op":"run","errno":-1}'; sleep 60`,
	"greets":   `echo hello; say '{"op":"ready","runtime":"python"}'; hear; say '{"op":"run"}'; echo job; exit 5`,
	"refuses":  `say '{"op":"ready","runtime":"python"}'; hear; say '{"op":"run","errno":2}'; hear; say '{"op":"run","cold":"why"}'; echo again`,
	"cells":    `say '{"op":"ready","runtime":"python"}'; hear; echo one; say '{"op":"cell","id":9}'; say '{"op":"cell","id":1,"status":"ok","result":"1"}'; hear; echo two; echo err >&2; say '{"op":"cell","id":2,"status":"error","type":"E"}'; hear; exit 4`,
	"keeps":    `sleep 60 >&- 2>&- 3>&- & say "{\"op\":\"ready\",\"runtime\":\"python\",\"keeper\":$!}"; hear; say '{"op":"run"}'; exit 5`,
	"keeps 1":  `say '{"op":"ready","runtime":"python","keeper":1}'; sleep 60`,
	"renews":   `say '{"op":"ready","runtime":"python"}'; hear; say '{"op":"run","number":9}'; exit 6`,
	"unstable": `say '{"op":"ready","runtime":"python"}'; hear; say '{"op":"cell","id":1}'; hear; say '{"op":"generation","number":8}'; say '{"op":"generation","number":9}'; hear; say '{"op":"cell","id":2}'; hear`,
	"ignores":  `say '{"op":"ready","runtime":"python"}'; hear; say '{"op":"cell","id":1}'; hear; say '{"op":"cell","id":2}'; exit 1`,
	"waits":    `say '{"op":"ready","runtime":"python"}'; hear; say '{"op":"cell","id":1}'; hear; say '{"op":"cell","id":2,"number":9}'; hear`,
}

// say writes a frame of less than 256 bytes; hear reads one of less than 2304.
const fakePrelude = `say() { printf "\\$(printf %o ${#1})\\000\\000\\000%s" "$1" >&3; }
hear() { set -- $(dd bs=1 count=4 <&3 2>/dev/null | od -An -tu1); dd bs=1 count=$(($1 + 256 * $2)) <&3 2>/dev/null >/dev/null; }
`

// fake starts a fake interpreter.
func fake(t *testing.T, s *Server, name string, timeout time.Duration) (agentproto.WarmResult, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fake")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n" + fakePrelude + fakes[name] + "\n"
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s.warm.dir = filepath.Join(dir, "warm")
	return s.startWarm(agentproto.WarmRequest{Runtime: "python", Env: []string{"PATH=" + dir + ":/usr/bin:/bin"}, Timeout: timeout})
}

// An interpreter that does not get warm is an error and leaves nothing.
func TestWarmFails(t *testing.T) {
	for _, c := range []struct{ name, has string }{
		{"exits", "oh no"}, {"silent", "timeout"}, {"garbage", "protocol"}, {"long", "protocol"}, {"other", "runtime"}, {"keeps 1", "not the interpreter's"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			_, err := fake(t, s, c.name, time.Second)
			if err == nil || !strings.Contains(err.Error(), c.has) {
				t.Errorf("error is %v", err)
			}
			if n := s.execCount(); n != 0 || len(s.warm.all()) != 0 {
				t.Errorf("%d execs are left", n)
			}
		})
	}
}

// exchange sends one request on a new connection and collects the frames up
// to the one that ends it.
type exchange struct {
	started agentproto.Started
	out     string
	exit    *agentproto.ExitStatus
	cell    *agentproto.CellResult
	err     error
}

func ask(t *testing.T, s *Server, typ agentproto.FrameType, req any) exchange {
	t.Helper()
	c, host := pair(t, s)
	payload, err := agentproto.Encode(req)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := c.handle(agentproto.Frame{Type: typ, Payload: payload}); err != nil {
			t.Error(err)
		}
	}()
	var x exchange
	for {
		f, err := host.Next()
		if err != nil {
			x.err = err
			return x
		}
		switch f.Type {
		case agentproto.FrameStarted:
			err = agentproto.Decode(f.Payload, &x.started)
		case agentproto.FrameStdout, agentproto.FrameStderr:
			x.out += string(f.Payload)
		case agentproto.FrameExit:
			x.exit = new(agentproto.ExitStatus)
			x.err = agentproto.Decode(f.Payload, x.exit)
			return x
		case agentproto.FrameOK:
			x.cell = new(agentproto.CellResult)
			x.err = agentproto.Decode(f.Payload, x.cell)
			return x
		case agentproto.FrameError:
			e := new(agentproto.Error)
			if x.err = agentproto.Decode(f.Payload, e); x.err == nil {
				x.err = e
			}
			return x
		default:
			err = fmt.Errorf("%s frame", f.Type)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func runRequest(w agentproto.WarmResult) agentproto.RunRequest {
	return agentproto.RunRequest{ExecID: w.ExecID, Argv: []string{"python3", "x"}, Cwd: "/"}
}

// An interpreter that misbehaves when it gets a job is killed, and the caller
// told.
func TestRunFails(t *testing.T) {
	for _, name := range []string{"dies", "floods", "mute", "wrong"} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			w, err := fake(t, s, name, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if x := ask(t, s, agentproto.FrameRun, runRequest(w)); x.err == nil {
				t.Errorf("%+v", x)
			}
			for end := time.Now().Add(5 * time.Second); s.warm.get(w.ExecID) != nil; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("it lives on")
				}
			}
		})
	}
}

// What a library says while it is loaded is not the job's output.
func TestRunFake(t *testing.T) {
	s := newServer(t)
	w, err := fake(t, s, "greets", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	x := ask(t, s, agentproto.FrameRun, runRequest(w))
	if x.err != nil || x.out != "job\n" || x.exit.Code != 5 || x.started.ExecID != w.ExecID {
		t.Errorf("%+v", x)
	}
}

// One that cannot enter the directory is as fresh as before.
func TestRunRefused(t *testing.T) {
	s := newServer(t)
	w, err := fake(t, s, "refuses", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if x := ask(t, s, agentproto.FrameRun, runRequest(w)); !errors.Is(x.err, agentproto.ErrNotFound) {
		t.Errorf("%+v", x)
	}
	if x := ask(t, s, agentproto.FrameRun, runRequest(w)); x.err != nil || x.out != "again\n" || x.started.Cold != "why" {
		t.Errorf("%+v", x)
	}
}

func TestCodeFake(t *testing.T) {
	s := newServer(t)
	w, err := fake(t, s, "cells", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	req := agentproto.CodeRequest{ExecID: w.ExecID, Source: "x"}
	x := ask(t, s, agentproto.FrameCode, req)
	if x.err != nil || x.out != "one\n" || x.cell == nil || x.cell.Result != "1" || x.cell.StdoutBytes != 4 {
		t.Errorf("%+v", x)
	}
	if x := ask(t, s, agentproto.FrameRun, runRequest(w)); !errors.Is(x.err, agentproto.ErrBadRequest) {
		t.Errorf("a context became a job: %+v", x)
	}
	x = ask(t, s, agentproto.FrameCode, req)
	if x.err != nil || x.cell == nil || x.cell.Status != agentproto.CellError || x.cell.StdoutBytes != 4 || x.cell.StderrBytes != 4 {
		t.Errorf("%+v", x)
	}
	if x := ask(t, s, agentproto.FrameCode, req); x.exit == nil || x.exit.Code != 4 {
		t.Errorf("%+v", x)
	}
}

// No job of an interpreter that does not say that it has renewed its generators.
func TestRunAfterGeneration(t *testing.T) {
	s := newServer(t)
	for _, c := range []struct {
		name string
		ok   bool
	}{{"renews", true}, {"greets", false}} {
		w, err := fake(t, s, c.name, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.warm.Renew(newGeneration(9), true); err != nil {
			t.Fatal(err)
		}
		x := ask(t, s, agentproto.FrameRun, runRequest(w))
		if c.ok && (x.err != nil || x.exit.Code != 6) || !c.ok && x.err == nil {
			t.Errorf("%s: %+v", c.name, x)
		}
	}
}

func newGeneration(number uint64) agentproto.Generation {
	return agentproto.Generation{Number: number, Seed: make([]byte, agentproto.SeedSize)}
}

// A context is told of a generation at once, but for one that is still: it is told with
// its next cell.
func TestCodeAfterGeneration(t *testing.T) {
	for _, c := range []struct {
		name          string
		frozen, still bool
		ok            bool
	}{
		{"unstable", true, false, true},
		{"unstable", false, true, true}, // as it may be no longer
		{"waits", true, true, true},
		{"ignores", true, true, false},
		{"ignores", true, false, false},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			s := newServer(t) // one at a time: each collects all children
			w, err := fake(t, s, c.name, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			req := agentproto.CodeRequest{ExecID: w.ExecID, Source: "x"}
			if x := ask(t, s, agentproto.FrameCode, req); x.err != nil {
				t.Fatalf("%+v", x)
			}
			it := s.warm.get(w.ExecID)
			it.mu.Lock()
			it.still = c.still
			it.mu.Unlock()
			if err := s.warm.Renew(newGeneration(9), c.frozen); err != nil {
				t.Fatal(err)
			}
			if x := ask(t, s, agentproto.FrameCode, req); (x.err == nil && x.cell != nil) != c.ok {
				t.Errorf("%+v", x)
			}
		})
	}
}

// withKeeper returns a server, and an interpreter of it that has a keeper.
func withKeeper(t *testing.T) (*Server, agentproto.WarmResult, *keeper) {
	t.Helper()
	s := newServer(t)
	w, err := fake(t, s, "keeps", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return s, w, s.warm.get(w.ExecID).keeper
}

// A template holds no keeper of a job that has ended, nor a part of one: before it is
// saved all are let go, and waited for.
func TestKeepersAreReleased(t *testing.T) {
	s, w, k := withKeeper(t)
	if x := ask(t, s, agentproto.FrameRun, agentproto.RunRequest{ExecID: w.ExecID, Argv: []string{"python3"}}); x.err != nil {
		t.Fatalf("%+v", x)
	}
	s.lingering.add(k) // the job's end does, a moment later
	if err := s.lingering.release(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-k.gone:
	default:
		t.Error("keeper is still there")
	}
}

// A keeper stands in a frozen group of its own: the job's end does not wait for it,
// and it is no leftover of the job. Soon after it is gone.
func TestKeeper(t *testing.T) {
	s, w, k := withKeeper(t)
	pids, err := k.group.Procs()
	if err != nil || len(pids) != 1 || pids[0] == int(w.PID) {
		t.Fatalf("processes %d, %v", pids, err)
	}
	x := ask(t, s, agentproto.FrameRun, agentproto.RunRequest{ExecID: w.ExecID, Argv: []string{"python3"}})
	if x.err != nil || x.exit.Code != 5 || x.exit.Killed {
		t.Fatalf("%+v", x)
	}
	if err := unix.Kill(pids[0], 0); err != nil {
		t.Errorf("keeper went with the job: %v", err)
	}
	for end := time.Now().Add(10 * time.Second); unix.Kill(pids[0], 0) == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("keeper is still there")
		}
	}
}
