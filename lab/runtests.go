package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"thaw/internal/hostcmd"
)

// Runner runs commands in a lab: a Lab, or a Client of a detached one.
type Runner interface {
	Run(ctx context.Context, cmd Command) (exit int, err error)
}

// TestBinary is a compiled Go test package to run in the lab.
type TestBinary struct {
	Name string   // import path
	Path string   // the binary, at a path of the host
	Dir  string   // the package's folder, where its testdata is
	Args []string // such as "-test.run=X"
	Env  []string // the whole environment
	// Timeout bounds the run; 0 is 10 minutes.
	Timeout time.Duration
}

const defaultTestTimeout = 10 * time.Minute

// TestReport says how test binaries ended.
type TestReport struct {
	Passed, Failed []string // names
	// Repeated names binaries that ran once more because the lab had died.
	Repeated []string
}

// Test runs test binaries one after another and passes their output to out. A
// binary whose lab died runs once more in the lab that comes after it, since
// that is the emulator's fault as a rule. The error is about the lab, or says
// how many binaries failed.
func Test(ctx context.Context, r Runner, bins []TestBinary, out io.Writer) (TestReport, error) {
	var rep TestReport
	for _, b := range bins {
		begin := time.Now()
		code, err := runTest(ctx, r, b, out)
		if errors.Is(err, ErrDied) {
			fmt.Fprintf(out, "lab: died under %s: running it again, once\n", b.Name)
			rep.Repeated = append(rep.Repeated, b.Name)
			code, err = runTest(ctx, r, b, out)
		}
		if ctx.Err() != nil {
			return rep, ctx.Err()
		}
		verdict := "ok"
		switch {
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return rep, fmt.Errorf("lab: test %s: %w", b.Name, err)
		case err != nil:
			verdict = "FAIL (timeout)"
		case code != 0:
			verdict = fmt.Sprintf("FAIL (exit code %d)", code)
		}
		if verdict == "ok" {
			rep.Passed = append(rep.Passed, b.Name)
		} else {
			rep.Failed = append(rep.Failed, b.Name)
		}
		fmt.Fprintf(out, "lab: %s\t%s\t%.0f s on the host's clock\n", verdict, b.Name, time.Since(begin).Seconds())
	}
	if n := len(rep.Failed); n > 0 {
		return rep, fmt.Errorf("lab: %d of %d test binaries failed: %s", n, len(bins), strings.Join(rep.Failed, ", "))
	}
	return rep, nil
}

func runTest(ctx context.Context, r Runner, b TestBinary, out io.Writer) (int, error) {
	timeout := b.Timeout
	if timeout == 0 {
		timeout = defaultTestTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// Go's own limit fires first: it prints the stacks.
	argv := append([]string{b.Path, fmt.Sprintf("-test.timeout=%v", timeout-timeout/20)}, b.Args...)
	return r.Run(ctx, Command{Argv: argv, Env: b.Env, Dir: b.Dir, Stdout: out, Stderr: out})
}

// BuildTests compiles the tests of packages (patterns as go test takes them) of
// the module in moduleDir into outDir, which the lab must see: any folder but
// /proc, /sys, /dev and /run. Packages without tests are left out.
func BuildTests(ctx context.Context, moduleDir, outDir string, patterns []string) ([]TestBinary, error) {
	outDir, err := filepath.Abs(outDir)
	if err != nil {
		return nil, fmt.Errorf("lab: build tests: %w", err)
	}
	out, err := goTool(ctx, moduleDir, append([]string{"list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var bins []TestBinary
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return bins, nil
		} else if err != nil {
			return nil, fmt.Errorf("lab: decode package list: %w", err)
		}
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 {
			continue
		}
		// Two packages may have the same last name.
		path := filepath.Join(outDir, strings.ReplaceAll(p.ImportPath, "/", "-")+".test")
		if _, err := goTool(ctx, moduleDir, "test", "-c", "-o", path, p.ImportPath); err != nil {
			return nil, err
		}
		bins = append(bins, TestBinary{Name: p.ImportPath, Path: path, Dir: p.Dir})
	}
}

func goTool(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("lab: go %s: %w: %s", args[0], err, hostcmd.LastLines(errs.String(), errorLines))
	}
	return out, nil
}
