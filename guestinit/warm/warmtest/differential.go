package warmtest

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"thaw/guestinit/agentproto"
)

// variation is what a script gets besides its name.
type variation struct {
	args  []string
	env   []string
	stdin string
	cold  string // why a fresh interpreter must run it; "": it must not
	all   bool   // preload what the agent would by itself
}

var variations = map[string]variation{
	"argv.py":              {args: []string{"a", "--b", "c d", ""}},
	"argv.js":              {args: []string{"a", "--b", "c d", ""}},
	"surrogate.py":         {args: []string{"\xff\xfe", "é"}},
	"environ.py":           {env: []string{"JOB=1", "HOME=/tmp", "EMPTY=", "UTF=é", "BYTES=\xff"}},
	"environ.js":           {env: []string{"JOB=1", "HOME=/tmp", "EMPTY=", "UTF=é"}},
	"stdin_lines.py":       {stdin: "line1\nline2\n"},
	"stdin_input.py":       {stdin: "line1\nline2\n"},
	"stdin_lines.js":       {stdin: "line1\nline2\n"},
	"stdin_sync.js":        {stdin: "line1\nline2\n"},
	"readline_stdin.mjs":   {stdin: "line1\nline2\n"},
	"unbuffered_by_env.py": {env: []string{"PYTHONUNBUFFERED=1"}, cold: "environment acts at start"},
	"bad_encoding.py":      {cold: "source does not compile"},
	"not_utf8.py":          {cold: "source does not compile"},
	"syntax_error.py":      {cold: "source does not compile"},
	"pandas_group.py":      {all: true},
	"hello.py":             {all: true},
	"frames.py":            {all: true},
	"fork_plain.py":        {all: true},
	"at_end.py":            {all: true},
	"warn_state.py":        {all: true},
	"modules_at_end.py":    {all: true},
	"no_such.py":           {cold: "script cannot be read"},
	"no_such.js":           {cold: "no such script"},
}

// extra command lines, by runtime, after the interpreter's name.
var extra = map[string]map[string][]string{
	"python": {
		"no_such.py": {"no_such.py"}, "-c": {"-c", "import sys; print(sys.argv, __name__)", "x"}, "-m": {"-m", "helper_module", "x"},
		"-u": {"-u", "hello.py"}, "-m missing": {"-m", "no_such_module"}, "-m fails": {"-m", "traceback_chain"}, "subdirectory": {"sub/../hello.py"},
		"directory": {"."},
	},
	"node": {
		"no_such.js": {"no_such.js"}, "-p": {"-p", "1 + 1"}, "--no-warnings": {"--no-warnings", "warning.js"}, "no extension": {"hello"},
		"directory": {"."},
	},
}

// What may differ between two runs of the same program: addresses, process
// ids, times, and the control socket in a list of descriptors.
var allowed = []*regexp.Regexp{
	regexp.MustCompile(`0x[0-9a-f]{6,}`),
	regexp.MustCompile(`\(node:\d+\)`),
	regexp.MustCompile(`started \d{10,}`),
	regexp.MustCompile(`in \d+\.\d+s`),
	regexp.MustCompile(`descriptors: \d+`),
}

func normal(s string) string {
	for _, r := range allowed {
		s = r.ReplaceAllString(s, "*")
	}
	return s
}

// differential runs every script in a fresh interpreter and in a warm one.
func (s *suite) differential(t *testing.T, runtime string) {
	const dir = "differential"
	for i, name := range s.put(t, runtime, dir) {
		if i%s.every != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			v := variations[name]
			s.compare(t, runtime, dir, append([]string{name}, v.args...), v)
		})
	}
	if runtime == "python" {
		// A module of the job's own that a warm one has loaded from elsewhere.
		for file, text := range map[string]string{"json.py": "value = 'local'\n", "main.py": "import json\nprint(json.value)\n"} {
			if err := s.c.PutFile(t.Context(), dir+"/shadow/"+file, 0o644, int64(len(text)), strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
		t.Run("shadow", func(t *testing.T) {
			s.compare(t, runtime, dir, []string{"shadow/main.py"}, variation{cold: "local module json"})
		})
	}
	for i, name := range slices.Sorted(maps.Keys(extra[runtime])) {
		if i%s.every != 0 {
			continue
		}
		args := extra[runtime][name]
		t.Run(name, func(t *testing.T) {
			v, known := variations[name]
			if !known {
				v.cold = "*"
			}
			s.compare(t, runtime, dir, args, v)
		})
	}
}

// compare runs one command line both ways. A variation's cold of "*" allows
// either.
func (s *suite) compare(t *testing.T, runtime, dir string, args []string, v variation) {
	argv := append([]string{command[runtime]}, args...)
	cwd := "/workspace/" + dir
	env := append([]string{"MPLBACKEND=Agg", "NODE_PATH=/usr/local/lib/node_modules"}, v.env...)
	cold := s.exec(t, agentproto.ExecRequest{Argv: argv, Env: env, Cwd: cwd}, v.stdin)
	load := preload[runtime]
	if v.all {
		load = nil
	}
	w := s.warmWith(t, runtime, load, env[:2])
	warm := s.run(t, agentproto.RunRequest{ExecID: w.ExecID, Argv: argv, Env: env, Cwd: cwd}, v.stdin)
	if v.cold != "*" && warm.cold != v.cold {
		t.Errorf("run cold because of %q, want %q", warm.cold, v.cold)
	}
	if cold.Code != warm.Code || cold.Signal != warm.Signal || cold.Cause != warm.Cause {
		t.Errorf("cold: code %d, signal %d, %s; warm: code %d, signal %d, %s",
			cold.Code, cold.Signal, cold.Cause, warm.Code, warm.Signal, warm.Cause)
	}
	for _, x := range []struct{ stream, cold, warm string }{{"stdout", cold.out, warm.out}, {"stderr", cold.err, warm.err}} {
		if normal(x.cold) != normal(x.warm) {
			t.Errorf("%s differs\n--- cold\n%s\n--- warm\n%s", x.stream, clip(x.cold), clip(x.warm))
		}
	}
}

func clip(s string) string {
	const most = 4000
	if len(s) > most {
		return s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
