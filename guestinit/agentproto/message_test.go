package agentproto

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// messages are one filled-in value of each message.
func messages() []any {
	return []any{
		&Ping{Nonce: 1 << 63},
		&Info{Version: 1, Kernel: "6.12", Hostname: "sandbox", CPUs: 2, MemTotal: 1 << 30, Image: []byte("{}"),
			Controllers: []string{"cpu"}, Uptime: time.Second, Phases: []Phase{{"init", time.Millisecond}}, AgentRSS: 5},
		&ExecRequest{Argv: []string{"a", "\xff", ""}, Env: []string{"A=1"}, Cwd: "/x", UID: 1, GID: 2,
			Limits:    Limits{MemoryBytes: 1 << 20, Pids: 1, CPUMilli: 10, CPUSeconds: 1, FileSizeBytes: 1, OpenFiles: 3, StackBytes: 1 << 20, AddressSpaceBytes: 1, Processes: 1},
			StdoutCap: 1, StderrCap: 2, Timeout: time.Second, Grace: time.Second, Stdin: true, Persist: true},
		&Started{PID: 5, ExecID: 6, Skipped: []string{"memory"}, StdoutAt: 1, StderrAt: 2, StdinAt: 3, StdinOpen: true, StdinCredit: 4},
		&Signal{Number: 15},
		&ExitStatus{Code: -1, Signal: 9, Cause: CauseOOM, Usage: Usage{CPU: 1, OOMKills: 1}, StdoutBytes: 10, StdoutDropped: 5, DiskFull: true, Detail: "starved"},
		&PutRequest{Path: "a/b", Mode: 0o644, Size: -1},
		&GetRequest{Path: "a", Max: 1},
		&ListRequest{Dir: ".", Max: 1, Depth: 2},
		&ListEnd{Truncated: "count"},
		&Entries{Files: []FileInfo{{Path: "a/\xff", Type: TypeFile, Size: 1, Mode: 0o4755, Nlink: 1, ModTime: -5}}},
		&Usage{CPU: 5, DiskTotal: 6},
		&Error{Code: CodeNotFound, Message: "no", Errno: 2},
		&AttachRequest{ExecID: 7},
		&FreezeRequest{Wait: time.Second, DropCaches: true, ReportFree: true},
		&FreezeResult{Took: 1, Prepared: 2, Execs: 3, FreeBytes: 4},
		generation(),
		&GenerationResult{Number: 1, Steps: GenerationSteps{Random: 1, Clock: 2, Identity: 3, Connections: 4, File: 5, Hooks: 6},
			WallBefore: 1, Wall: 2, Destroyed: 3, Frozen: true},
	}
}

func generation() *Generation {
	return &Generation{
		Number: 1 << 63, Seed: bytes.Repeat([]byte{0xa5}, SeedSize), Wall: 1_800_000_000_000_000_000,
		Hostname: "sandbox-7.example", MachineID: bytes.Repeat([]byte{0x5a}, MachineIDSize),
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, m := range messages() {
		t.Run(fmt.Sprintf("%T", m), func(t *testing.T) {
			b, err := Encode(m)
			if err != nil {
				t.Fatal(err)
			}
			got := reflect.New(reflect.TypeOf(m).Elem()).Interface()
			if err := Decode(b, got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(m, got); d != "" {
				t.Error(d)
			}
			again, err := Encode(got)
			if err != nil || !bytes.Equal(b, again) {
				t.Errorf("encoding is not deterministic: %x, %x, %v", b, again, err)
			}
			for i := range b { // every cut is refused
				if err := Decode(b[:i], reflect.New(reflect.TypeOf(m).Elem()).Interface()); !errors.Is(err, ErrProtocol) {
					t.Errorf("%d of %d bytes: %v", i, len(b), err)
				}
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	nest := strings.Repeat("\x81", 20) + "\x00"
	for _, c := range []struct {
		name, wire string
		into       any
	}{
		{"nesting", "\xa1\x01" + nest, new(Ping)},
		{"huge array", "\xa1\x01\x9a\xff\xff\xff\xff", new(ExecRequest)},
		{"huge string", "\xa1\x03\x5a\xff\xff\xff\xff", new(ExecRequest)},
		{"huge map", "\xba\xff\xff\xff\xff", new(Ping)},
		{"indefinite", "\xbf\x01\x01\xff", new(Ping)},
		{"tag", "\xc1\x01", new(Ping)},
		{"double key", "\xa2\x01\x01\x01\x02", new(Ping)},
		{"trailing bytes", "\xa0\x00", new(Ping)},
		{"wrong type", "\xa1\x01\x20", new(Ping)},
		{"empty", "", new(Ping)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Decode([]byte(c.wire), c.into); !errors.Is(err, ErrProtocol) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestDecodeSkipsUnknownFields(t *testing.T) {
	// {1: 7, 99: "new"}
	var p Ping
	if err := Decode([]byte("\xa2\x01\x07\x18\x63\x43new"), &p); err != nil || p.Nonce != 7 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestExecRequestBounds(t *testing.T) {
	ok := func() ExecRequest { return ExecRequest{Argv: []string{"true"}} }
	for _, c := range []struct {
		name   string
		change func(r *ExecRequest)
	}{
		{"no argv", func(r *ExecRequest) { r.Argv = nil }},
		{"empty program", func(r *ExecRequest) { r.Argv = []string{""} }},
		{"many arguments", func(r *ExecRequest) { r.Argv = make([]string, MaxArgs+1); r.Argv[0] = "x" }},
		{"NUL in argument", func(r *ExecRequest) { r.Argv = []string{"x", "a\x00b"} }},
		{"many variables", func(r *ExecRequest) { r.Env = make([]string, MaxEnv+1) }},
		{"no name", func(r *ExecRequest) { r.Env = []string{"=x"} }},
		{"no equals sign", func(r *ExecRequest) { r.Env = []string{"x"} }},
		{"NUL in variable", func(r *ExecRequest) { r.Env = []string{"A=\x00"} }},
		{"relative cwd", func(r *ExecRequest) { r.Cwd = "x" }},
		{"NUL in cwd", func(r *ExecRequest) { r.Cwd = "/\x00" }},
		{"long cwd", func(r *ExecRequest) { r.Cwd = "/" + strings.Repeat("x", MaxPath) }},
		{"negative cap", func(r *ExecRequest) { r.StdoutCap = -1 }},
		{"large cap", func(r *ExecRequest) { r.StderrCap = MaxOutputCap + 1 }},
		{"negative timeout", func(r *ExecRequest) { r.Timeout = -1 }},
		{"negative grace", func(r *ExecRequest) { r.Grace = -1 }},
		{"long grace", func(r *ExecRequest) { r.Grace = MaxGrace + 1 }},
		{"negative limit", func(r *ExecRequest) { r.Limits.Pids = -1 }},
		{"little memory", func(r *ExecRequest) { r.Limits.MemoryBytes = 4096 }},
		{"little cpu", func(r *ExecRequest) { r.Limits.CPUMilli = 1 }},
		{"few files", func(r *ExecRequest) { r.Limits.OpenFiles = 2 }},
		{"little stack", func(r *ExecRequest) { r.Limits.StackBytes = 4096 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ok()
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			if c.change(&r); r.Validate() == nil {
				t.Error("it was accepted")
			}
		})
	}
}

func TestValidPath(t *testing.T) {
	for p, ok := range map[string]bool{
		"a": true, "a/b.c": true, "..a/b..": true, "\xff": true, strings.Repeat("x", MaxName): true,
		"": false, "/a": false, "a/": false, "a//b": false, ".": false, "..": false, "a/../b": false, "a/./b": false,
		"a\x00": false, strings.Repeat("x", MaxName+1): false, strings.Repeat("a/", MaxPathDepth) + "a": false,
	} {
		if err := ValidPath(p); (err == nil) != ok {
			t.Errorf("%.40q: %v", p, err)
		}
	}
}

func TestGuestClaimsAreBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		v    validator
	}{
		{"unknown cause", &ExitStatus{Cause: "sunspots"}},
		{"long detail", &ExitStatus{Cause: CauseOOM, Detail: strings.Repeat("a", MaxDetail+1)}},
		{"detail of two lines", &ExitStatus{Cause: CauseOOM, Detail: "a\nb"}},
		{"exit code", &ExitStatus{Cause: CauseExited, Code: 256}},
		{"signal", &ExitStatus{Cause: CauseSignal, Signal: 65}},
		{"negative bytes", &ExitStatus{Cause: CauseExited, StdoutBytes: -1}},
		{"more dropped than written", &ExitStatus{Cause: CauseExited, StdoutBytes: 1, StdoutDropped: 2}},
		{"negative usage", &ExitStatus{Cause: CauseExited, Usage: Usage{CPU: -1}}},
		{"file type", &FileInfo{Path: "a", Type: "door"}},
		{"absolute path", &FileInfo{Path: "/etc", Type: TypeFile}},
		{"path upwards", &FileInfo{Path: "a/../../b", Type: TypeFile}},
		{"negative size", &FileInfo{Path: "a", Type: TypeFile, Size: -1}},
		{"mode", &FileInfo{Path: "a", Type: TypeFile, Mode: 0o100644}},
		{"long kernel name", &Info{Kernel: strings.Repeat("x", 257)}},
		{"many phases", &Info{Phases: make([]Phase, 65)}},
		{"many skipped", &Started{Skipped: make([]string, 33)}},
		{"long message", &Error{Code: "x", Message: strings.Repeat("x", 5000)}},
		{"no code", &Error{}},
		{"position before the stream", &Started{StdoutAt: -1}},
		{"position of input", &Started{StdinAt: -1}},
		{"credit over the window", &Started{StdinCredit: StdinWindow + 1}},
		{"negative time of freezing", &FreezeResult{Took: -1}},
		{"negative free memory", &FreezeResult{FreeBytes: -1}},
		{"negative time of a step", &GenerationResult{Steps: GenerationSteps{Connections: -1}}},
		{"negative connections", &GenerationResult{Destroyed: -1}},
	} {
		if c.v.Validate() == nil {
			t.Errorf("%s was accepted", c.name)
		}
	}
}

func TestCheckpointRequestBounds(t *testing.T) {
	if err := generation().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(g *Generation){
		"zero":            func(g *Generation) { g.Number = 0 },
		"short seed":      func(g *Generation) { g.Seed = g.Seed[1:] },
		"long seed":       func(g *Generation) { g.Seed = make([]byte, SeedSize+1) },
		"1970":            func(g *Generation) { g.Wall = 0 },
		"negative clock":  func(g *Generation) { g.Wall = -g.Wall },
		"far future":      func(g *Generation) { g.Wall = 1<<63 - 1 },
		"short id":        func(g *Generation) { g.MachineID = nil },
		"no hostname":     func(g *Generation) { g.Hostname = "" },
		"long hostname":   func(g *Generation) { g.Hostname = strings.Repeat("x", MaxHostname+1) },
		"hostname bytes":  func(g *Generation) { g.Hostname = "a\nb" },
		"hostname hyphen": func(g *Generation) { g.Hostname = "-a" },
	} {
		g := generation()
		if change(g); g.Validate() == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, r := range []*FreezeRequest{{Wait: -1}, {Wait: MaxFreezeWait + 1}} {
		if r.Validate() == nil {
			t.Errorf("%+v was accepted", r)
		}
	}
}

func TestFromErr(t *testing.T) {
	for _, c := range []struct {
		err  error
		want *Error
	}{
		{&os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, ErrNotFound},
		{fmt.Errorf("x: %w", syscall.ENOSPC), ErrNoSpace},
		{fmt.Errorf("x: %w", syscall.EDQUOT), ErrNoSpace},
		{fmt.Errorf("x: %w", syscall.ELOOP), ErrSymlink},
		{fmt.Errorf("x: %w", syscall.EISDIR), ErrNotRegular},
		{fmt.Errorf("x: %w", syscall.EIO), ErrInternal},
		{fmt.Errorf("x: %w", ErrProtocol), ErrBadRequest},
		{fmt.Errorf("x: %w", &Error{Code: CodeBusy}), ErrBusy},
		{errors.New(strings.Repeat("x", 9999)), ErrInternal},
	} {
		got := FromErr(c.err)
		if !errors.Is(got, c.want) || got.Validate() != nil {
			t.Errorf("%v gives %v", c.err, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for i, m := range messages() {
		b, err := Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
	}
	f.Fuzz(func(t *testing.T, kind uint8, wire []byte) {
		all := messages()
		typ := reflect.TypeOf(all[int(kind)%len(all)]).Elem()
		v := reflect.New(typ).Interface()
		if err := Decode(wire, v); err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		b, err := Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(typ).Interface()
		if err := Decode(b, again); err != nil {
			t.Fatalf("what was accepted does not come back: %v", err)
		}
		b2, err := Encode(again)
		if err != nil || !bytes.Equal(b, b2) {
			t.Fatalf("encoding changes: %x, %x, %v", b, b2, err)
		}
	})
}
