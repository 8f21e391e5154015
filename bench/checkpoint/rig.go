package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"thaw/api"
	"thaw/bench/daemon"
	"thaw/bench/floor"
	"thaw/bench/samples"
	"thaw/client"
)

const (
	// genericShells and rehearsedShells wait while the host is idle: eight for forks
	// of a template's checkpoint.
	genericShells, rehearsedShells = 7, 1
	// overcommit lets a hundred idle forks in.
	overcommit = 16
	// idleTime bounds the wait for shells. The first rehearsal follows a template's boot.
	idleTime  = 60 * time.Second
	idlePause = 5 * time.Millisecond
	// calm is how long the host is left alone before a clock starts.
	calm = 10 * time.Millisecond
	// callTime bounds each request.
	callTime = time.Minute

	imagePython, imageNode = "python", "node"
)

// rig is a daemon and what is needed to measure with it.
type rig struct {
	cfg    Config
	dir    string // temporary
	kernel string // path
	n      int    // samples of most metrics
	daemon *daemon.Daemon
	client *client.Client
	raw    *samples.File
	floor  *floor.Floor // nil until the first template is there

	templates map[string]bool // that are there
}

func (r *rig) say(format string, args ...any) {
	fmt.Fprintf(r.cfg.Progress, "bench: "+format+"\n", args...)
}

// shells says how many of each kind a daemon keeps ready.
type shells struct{ generic, bound, rehearsed int }

// start starts the daemon.
func (r *rig) start(ctx context.Context, n shells) (err error) {
	r.daemon, err = daemon.Start(ctx, daemon.Config{Bin: r.cfg.Bin, Dir: r.dir, Kernel: r.kernel, Args: []string{
		fmt.Sprintf("--generic-shells=%d", n.generic), fmt.Sprintf("--bound-shells=%d", n.bound), fmt.Sprintf("--rehearsed-shells=%d", n.rehearsed),
		fmt.Sprintf("--overcommit=%d", overcommit),
	}})
	if err == nil {
		r.client = r.daemon.Client
	}
	return err
}

// close ends the daemon.
func (r *rig) close() error {
	if r.floor != nil {
		r.floor.Close()
	}
	if r.daemon == nil {
		return nil
	}
	return r.daemon.Stop()
}

// floorOf opens the floor over the python template, which is made now if need be.
func (r *rig) floorOf(ctx context.Context) (*floor.Floor, error) {
	if r.floor != nil {
		return r.floor, nil
	}
	s, err := r.create(ctx, api.SandboxRequest{Image: imagePython})
	if err != nil {
		return nil, err
	}
	if err := r.remove(ctx, s); err != nil {
		return nil, err
	}
	r.floor, err = floor.Open(filepath.Join(r.dir, "state", "snapshots", "snapshots", s.Origin))
	return r.floor, err
}

// idle waits until all shells are ready and nothing is left to do.
func (r *rig) idle(ctx context.Context) error {
	for deadline := time.Now().Add(idleTime); ; {
		info, err := r.client.Info(ctx)
		if err != nil {
			return err
		}
		var lacks []string
		for _, s := range info.Templates.Shells {
			if s.Ready < s.Wanted {
				lacks = append(lacks, fmt.Sprintf("%d of %d %s shells", s.Ready, s.Wanted, s.Shell))
			}
		}
		if lacks == nil {
			time.Sleep(calm)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("checkpoint: the daemon is not ready after %v: %s: %s", idleTime, strings.Join(lacks, ", "), tail(r.daemon.Log()))
		}
		select {
		case <-time.After(idlePause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tail is the end of a log.
func tail(log string) string {
	const most = 1000
	return log[max(0, len(log)-most):]
}

// create makes a sandbox.
func (r *rig) create(ctx context.Context, req api.SandboxRequest) (api.Sandbox, error) {
	if req.Image != "" {
		if err := r.template(ctx, req); err != nil {
			return api.Sandbox{}, err
		}
	}
	return r.client.CreateSandbox(ctx, req)
}

// template has an image's template made, outside of any clock.
func (r *rig) template(ctx context.Context, req api.SandboxRequest) error {
	key := fmt.Sprint(req.Image, req.MemoryMiB)
	if r.templates[key] {
		return nil
	}
	r.say("template of the %s image", req.Image)
	s, err := r.client.CreateSandbox(ctx, req)
	if err != nil {
		return err
	}
	r.templates[key] = true
	return r.remove(ctx, s)
}

// remove destroys a sandbox.
func (r *rig) remove(ctx context.Context, s api.Sandbox) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	return r.client.RemoveSandbox(ctx, s.ID)
}

// first runs a cell and returns when its first output came. want must be the output's
// beginning.
func (r *rig) first(ctx context.Context, s api.Sandbox, runtime, source, want string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var at time.Time
	var out, errs strings.Builder
	result, err := r.client.RunCode(ctx, s.ID, api.CodeRequest{Runtime: runtime, Source: source}, client.Watcher{
		Stdout: func(b []byte) error {
			if at.IsZero() {
				at = time.Now()
			}
			out.Write(b)
			return nil
		},
		Stderr: func(b []byte) error { errs.Write(b); return nil },
	})
	switch {
	case err != nil:
		return at, err
	case result.Error != nil:
		return at, result.Error
	case result.Status != api.CellOK:
		return at, fmt.Errorf("checkpoint: a cell ended with %s: %s: %s", result.Status, result.ErrorText, errs.String())
	case at.IsZero() || !strings.HasPrefix(out.String(), want):
		return at, fmt.Errorf("checkpoint: a cell printed %q, not %q", out.String(), want)
	}
	return at, nil
}

// cell runs a Python cell and returns what it printed.
func (r *rig) cell(ctx context.Context, s api.Sandbox, source string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var out, errs strings.Builder
	result, err := r.client.RunCode(ctx, s.ID, api.CodeRequest{Source: source}, client.Watcher{
		Stdout: func(b []byte) error { out.Write(b); return nil },
		Stderr: func(b []byte) error { errs.Write(b); return nil },
	})
	switch {
	case err != nil:
		return "", err
	case result.Error != nil:
		return "", result.Error
	case result.Status != api.CellOK:
		return "", fmt.Errorf("checkpoint: a cell ended with %s: %s: %s", result.Status, result.ErrorText, errs.String())
	}
	return out.String(), nil
}

// number runs a Python cell that prints a number.
func (r *rig) number(ctx context.Context, s api.Sandbox, source string) (v float64, err error) {
	out, err := r.cell(ctx, s, source)
	if err != nil {
		return 0, err
	}
	return parseNumber(out)
}

// parseNumber reads a number on a line of its own.
func parseNumber(text string) (v float64, err error) {
	var rest string
	n, err := fmt.Sscanln(text, &v)
	if n == 1 && (err == nil || errors.Is(err, io.EOF)) {
		_, rest, _ = strings.Cut(text, "\n")
		if rest == "" {
			return v, nil
		}
	}
	return 0, fmt.Errorf("checkpoint: %.200q is not a number", text)
}

// with makes a sandbox of the python image, and removes it.
func (r *rig) with(ctx context.Context, req api.SandboxRequest, do func(api.Sandbox) error) error {
	s, err := r.create(ctx, req)
	if err != nil {
		return err
	}
	return errors.Join(do(s), r.remove(ctx, s))
}

// forget removes snapshots that were made of a sandbox, from the first on. It waits for
// those that are still being written.
func (r *rig) forget(ctx context.Context, first string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	for {
		_, err := r.client.RemoveSnapshot(ctx, first, true)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeSnapshotInUse {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func milliseconds(list []time.Duration) []float64 {
	out := make([]float64, len(list))
	for i, d := range list {
		out[i] = ms(d)
	}
	return out
}
