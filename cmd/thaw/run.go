package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/client"
)

// Exit codes of `thaw run`. A program that ends by itself gives its own; one that
// ends by signal n gives 128 + n, as shells do. The program may use these codes
// too: --json tells them apart for certain.
const (
	exitTimedOut  = 124 // the wall clock ran out, like timeout(1)
	exitThaw      = 125 // Thaw refused or failed: the program's result is not known
	exitCancelled = 130 // cancelled, by an interrupt or through the API
)

// cancelWait is how long an interrupted run waits for its job to be cleaned up.
const cancelWait = 30 * time.Second

// runOptions are the flags of `thaw run`.
type runOptions struct {
	image, network, out, model string
	in, env, limits, types     []string
	timeout                    time.Duration
	timed                      bool // timeout was given
	quiet                      bool
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- SCRIPT [ARG…]",
		Short: "Run a script in a microVM of its own",
		Long: `Run uploads the script and its inputs, runs it in a microVM, passes its output on
and writes its artifacts (files that it leaves in $THAW_OUT, /workspace/out) to
the folder of --out.

It ends with the program's exit code (128 + n after signal n), with 124 when the
time is over, 130 when cancelled, and 125 when Thaw itself refused or failed, a
wrong flag included. Standard input is not passed on.

Output files that are not taken, such as links, those beyond a limit or of a type
that is not allowed, leave the exit code as it is: the program's. They are warned
of on stderr, and with --json result.rejected_count says how many there are.

Limits that are not given have the defaults that thaw info shows.`,
		Example: "  thaw run --in sales.csv -- main.py --month 3\n  thaw run --in logs/ --limit memory_mib=1024 -- summary.mjs",
		Args: func(cmd *cobra.Command, args []string) error {
			return refused(cobra.MinimumNArgs(1)(cmd, args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.timed = cmd.Flags().Changed("timeout")
			code, err := a.runJob(cmd.Context(), o, args)
			switch {
			case code == 0 && err == nil:
				return nil
			case cmd.Context().Err() != nil:
				code = exitCancelled
			}
			return &exitError{code, err}
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return refused(err) })
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the script is the script's
	f.StringVar(&o.image, "image", "", "image to run in: python, node or dual (default: by the script's ending)")
	f.StringVar(&o.network, "network", "", "network profile (default: none)")
	f.StringArrayVar(&o.in, "in", nil, "file or folder to put into the workspace; DIR/ puts its content there (repeatable)")
	f.StringVar(&o.out, "out", "out", "folder for artifacts")
	f.StringArrayVar(&o.env, "env", nil, "NAME=VALUE for the program's environment (repeatable)")
	f.StringArrayVar(&o.limits, "limit", nil, "NAME=VALUE: wall_seconds, memory_mib, cpu_cores, pids, workspace_bytes, output_bytes, output_files, stdout_bytes (repeatable; bytes take K, M, G)")
	f.StringArrayVar(&o.types, "output-type", nil, "allowed media type of artifacts, such as image/* (repeatable; default: all)")
	f.DurationVar(&o.timeout, "timeout", 0, "wall clock of the program, such as 90s or 5m, rounded up to seconds (the same as --limit wall_seconds; default: thaw info)")
	f.StringVar(&o.model, "model", "", "model that wrote the program, for the record")
	f.BoolVar(&o.quiet, "quiet", false, "do not list artifacts on stderr")
	_ = cmd.RegisterFlagCompletionFunc("image", cobra.FixedCompletions(imageNames, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// refused ends the program as Thaw's own refusals do: any other code could be the
// job's.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitThaw, err}
}

// checkOut says whether artifacts can be written to dir, before a job runs for
// them. The folder is made only when there are some.
func checkOut(dir string) error {
	at := dir
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		at = filepath.Dir(filepath.Clean(dir))
		info, err = os.Stat(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // several folders are to be made: that will show
		}
	}
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "write to", Path: at, Err: unix.ENOTDIR}
	}
	if err == nil {
		err = unix.Access(at, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return api.Errorf(api.CodeRequestInvalid, "artifacts cannot be written to %q", dir).WithCause(err).
			WithRemedy("name a folder that you may write with --out")
	}
	return nil
}

// runJob returns the exit code, and the error to be printed with it.
func (a *app) runJob(ctx context.Context, o runOptions, args []string) (int, error) {
	req, files, err := buildRequest(o, args)
	if err != nil {
		return exitThaw, err
	}
	if err := checkOut(o.out); err != nil {
		return exitThaw, err
	}
	c, err := a.client()
	if err != nil {
		return exitThaw, err
	}
	defer c.Close()
	// A daemon that does not answer is told before anything is uploaded.
	info, err := c.Info(ctx)
	if err != nil {
		return exitThaw, err
	}
	if len(info.NotEnforced) > 0 && !o.quiet && !a.json {
		fmt.Fprintf(a.stderr, "thaw: development mode: %d guarantee(s) are not enforced here, see `thaw info`\n", len(info.NotEnforced))
	}
	defer func() { removeInputs(c, req.Inputs) }()
	if err := upload(ctx, c, &req, files); err != nil {
		return exitThaw, err
	}
	job, err := c.Submit(ctx, req)
	if err != nil {
		return exitThaw, err
	}
	job, err = a.follow(ctx, c, job.ID)
	if err != nil {
		return exitThaw, err
	}
	return a.conclude(ctx, c, job, o)
}

// removeInputs gives the daemon's space back. It would expire by itself.
func removeInputs(c *client.Client, inputs []api.InputRef) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, in := range inputs {
		if in.Input != "" && c.RemoveInput(ctx, in.Input) != nil {
			return
		}
	}
}

// follow passes output on until the job is over. An interrupt, or an output that
// takes no more, cancels the job and waits for its end.
func (a *app) follow(ctx context.Context, c *client.Client, id string) (api.Job, error) {
	job, err := c.Follow(ctx, id, a.watcher())
	if err == nil {
		return job, nil
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
	defer cancel()
	if _, cerr := c.Cancel(late, id); cerr != nil && !errors.Is(cerr, api.Errorf(api.CodeConflict, "")) {
		return job, errors.Join(err, cerr)
	}
	job, ferr := c.Follow(late, id, client.Watcher{})
	if ctx.Err() != nil && ferr == nil {
		return job, nil
	}
	return job, errors.Join(err, ferr)
}

// watcher prints a job's events: its output as it is, or all of them as JSON lines.
func (a *app) watcher() client.Watcher {
	if a.json {
		return client.Watcher{
			State:  func(e api.StateEvent) error { return a.event(api.EventState, e) },
			Stdout: func(b []byte) error { return a.event(api.EventStdout, api.NewOutputEvent(b)) },
			Stderr: func(b []byte) error { return a.event(api.EventStderr, api.NewOutputEvent(b)) },
			Gap:    func(e api.GapEvent) error { return a.event(api.EventGap, e) },
		}
	}
	return client.Watcher{
		Stdout: func(b []byte) error { _, err := a.stdout.Write(b); return err },
		Stderr: func(b []byte) error { _, err := a.stderr.Write(b); return err },
		Gap: func(e api.GapEvent) error {
			_, err := fmt.Fprintf(a.stderr, "thaw: about %d bytes of output were missed\n", e.Bytes)
			return err
		},
	}
}

// event prints one JSON line.
func (a *app) event(name string, data any) error {
	return json.NewEncoder(a.stdout).Encode(struct {
		Event string `json:"event"`
		Data  any    `json:"data"`
	}{name, data})
}

// conclude saves artifacts, says what is worth knowing, and picks the exit code.
func (a *app) conclude(ctx context.Context, c *client.Client, job api.Job, o runOptions) (int, error) {
	if a.json {
		if err := a.event(api.EventResult, job); err != nil {
			return exitThaw, err
		}
	}
	r := job.Result
	if r == nil {
		return exitThaw, api.Errorf(api.CodeInternal, "the daemon gave no result for job %s", job.ID)
	}
	if err := a.save(ctx, c, job.ID, r.Artifacts, o.out); err != nil {
		return exitThaw, err
	}
	if !a.json {
		a.report(job.ID, r, o)
	}
	switch job.State {
	case api.StateDone:
		if r.Exit == nil {
			return exitThaw, api.Errorf(api.CodeInternal, "the daemon gave no exit code for job %s", job.ID)
		}
		return r.Exit.Code, nil
	case api.StateTimedOut:
		return exitTimedOut, r.Error
	case api.StateCancelled:
		return exitCancelled, r.Error
	}
	return exitThaw, r.Error
}

// causeText explains ends of a program that its exit code does not.
var causeText = map[string]string{
	"oom":            "the program was killed: it used more memory than its limit (raise --limit memory_mib)",
	"pids_exhausted": "the program was refused more processes than its limit (raise --limit pids)",
	"cpu_time":       "the program used up its CPU time",
	"file_size":      "the program wrote a file larger than it may",
	"disk_full":      "the workspace's disk is full (raise --limit workspace_bytes)",
}

// report lists artifacts, unless they are not to be, and warns in any case.
func (a *app) report(id string, r *api.Result, o runOptions) {
	if !o.quiet {
		for _, art := range r.Artifacts {
			fmt.Fprintln(a.stderr, "thaw: "+artifactLine(art, o.out))
		}
	}
	a.warnRejected(id, r.Rejected, r.RejectedCount)
	for i, s := range []api.StreamInfo{r.Stdout, r.Stderr} {
		if s.Dropped > 0 {
			fmt.Fprintf(a.stderr, "thaw: %d bytes of %s were dropped (raise --limit stdout_bytes)\n", s.Dropped, []string{"stdout", "stderr"}[i])
		}
	}
	if r.Exit != nil && causeText[r.Exit.Cause] != "" {
		fmt.Fprintf(a.stderr, "thaw: %s\n", causeText[r.Exit.Cause])
	}
	if !r.CleanupOK {
		fmt.Fprintf(a.stderr, "thaw: cleaning up failed on the host: %s\n", strings.ReplaceAll(r.CleanupErr, "\n", "; "))
	}
}

// wallSeconds rounds up: a limit of the wire is whole seconds.
func wallSeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }
