package hostcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func sh(script string) Command { return Command{Argv: []string{"sh", "-c", script}} }

func TestFailure(t *testing.T) {
	// The streams come by two pipes: in any order.
	_, err := sh("echo out; echo why >&2; exit 3").Run(t.Context())
	if ExitCode(err) != 3 || !strings.Contains(Output(err), "out\n") || !strings.Contains(err.Error(), "exit status 3:\n") || !strings.Contains(err.Error(), "why") {
		t.Errorf("error %v", err)
	}
	_, err = Command{Argv: []string{"no-such-program"}}.Run(t.Context())
	if err == nil || ExitCode(err) != -1 || Output(err) != "" {
		t.Errorf("missing program: error %v", err)
	}
	if ExitCode(nil) != -1 || Output(errors.New("other")) != "" {
		t.Error("an error of something else has a code or output")
	}
}

func TestOutput(t *testing.T) {
	out, err := sh(fmt.Sprintf("head -c %d /dev/zero; echo end", 3*KeptOutput)).Run(t.Context())
	if err != nil || len(out) != KeptOutput || !strings.HasSuffix(out, "end\n") {
		t.Errorf("%d bytes, %v; want the last %d", len(out), err, KeptOutput)
	}
	var to strings.Builder
	c := sh("echo out; echo why >&2; exit 1")
	c.Stdout = &to
	if out, err := c.Run(t.Context()); out != "" || to.String() != "out\n" || Output(err) != "why\n" {
		t.Errorf("returned %q, wrote %q, error %v", out, to.String(), err)
	}
}

func TestCleanEnvironment(t *testing.T) {
	t.Setenv("MAKEFLAGS", "-j99")
	t.Setenv("LANG", "de_DE.UTF-8")
	c := Command{Argv: []string{"env"}, Env: []string{"KBUILD_BUILD_USER=thaw"}}
	for _, c.Clean = range []bool{false, true} {
		out, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{
			"KBUILD_BUILD_USER=thaw": true, "PATH=": true, "MAKEFLAGS": !c.Clean, "LANG=": !c.Clean, "TZ=UTC": c.Clean,
		} {
			if want && !strings.Contains(out, name) || c.Clean && !want && strings.Contains(out, name) {
				t.Errorf("clean %v: the program sees %s: %v", c.Clean, name, !want)
			}
		}
	}
}

func TestEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	// The grandchild holds the output open: ending the shell alone would not do.
	_, err := sh("sleep 60 & wait").Run(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 5*time.Second {
		t.Errorf("err = %v after %v, want the deadline's", err, time.Since(start))
	}
	if _, err := sh("true").Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
}

// aptGet puts a program in apt-get's place that logs its arguments and fails as
// the script says, and returns the log's path.
func aptGet(t *testing.T, script string) string {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	text := "#!/bin/sh\necho \"$@\" >> " + log + "\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return log
}

func TestInstall(t *testing.T) {
	for _, c := range []struct {
		name, script string
		calls        int
		ok           bool
	}{
		{"at once", "exit 0", 1, true},
		{"after an update", `if [ -e $0.updated ]; then exit 0; fi; case "$*" in *update*) touch $0.updated;; *) exit 100;; esac`, 3, true},
		{"no such package", `case "$*" in *update*) ;; *) exit 100;; esac`, 3, false},
		{"no network", "exit 100", 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := aptGet(t, c.script)
			err := Install(t.Context(), "a", "b")
			b, _ := os.ReadFile(log)
			if (err == nil) != c.ok || strings.Count(string(b), "\n") != c.calls || !strings.Contains(string(b), "install -y --no-install-recommends a b\n") {
				t.Errorf("error %v, calls:\n%s", err, b)
			}
		})
	}
}

func TestLastLines(t *testing.T) {
	for text, want := range map[string]string{"": "", "a": "a", "a\nb\nc\n": "b\nc"} {
		if got := LastLines(text, 2); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
