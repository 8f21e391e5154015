package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/client"
)

// maxCell is the largest cell that the daemon takes, in bytes.
const maxCell = 1 << 20

func (a *app) sandboxCodeCommand() *cobra.Command {
	var r api.CodeRequest
	var file string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "code SANDBOX [SOURCE | -]", Short: "Run a cell in a sandbox's warm interpreter", Args: cobra.RangeArgs(1, 2),
		Long: `Code runs one cell; cells of one interpreter share their variables. The value of its
last expression is printed, as the interpreter shows it. SOURCE is the cell itself,
or - for standard input. It ends with 0, or with 1 when the cell raised an error.`,
		Example:           "  thaw sandbox code $SB 'x = 6 * 7'\n  echo 'print(x)' | thaw sandbox code $SB -",
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.Source, err = cellSource(args[1:], file, os.Stdin); err != nil {
				return err
			}
			r.TimeoutSeconds = wallSeconds(timeout)
			return a.withClient(func(c *client.Client) error {
				result, err := c.RunCode(cmd.Context(), args[0], r, a.watcher())
				if err != nil {
					return err
				}
				return a.concludeCell(result)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Runtime, "runtime", "", "python or node, where the image has both (default: its first)")
	f.StringVarP(&file, "file", "f", "", "read the cell from a file")
	f.DurationVar(&timeout, "timeout", 0, "when the cell is interrupted (default 5m)")
	return cmd
}

// cellSource is the text of a cell, from wherever the command line says.
func cellSource(args []string, file string, stdin io.Reader) (string, error) {
	switch {
	case (len(args) == 0) == (file == ""):
		return "", api.Errorf(api.CodeRequestInvalid, "name one cell").WithRemedy("give its source, - for standard input, or --file")
	case file != "":
		f, err := os.Open(file)
		if err != nil {
			return "", api.Errorf(api.CodeRequestInvalid, "the cell cannot be read").WithCause(err)
		}
		defer f.Close()
		stdin = f
	case args[0] != "-":
		return args[0], nil
	}
	b, err := io.ReadAll(io.LimitReader(stdin, maxCell+1))
	if err == nil && len(b) > maxCell {
		err = fmt.Errorf("it is larger than %d bytes", maxCell)
	}
	if err != nil {
		return "", api.Errorf(api.CodeRequestInvalid, "the cell cannot be read").WithCause(err)
	}
	return string(b), nil
}

// concludeCell prints a cell's value and picks the exit code.
func (a *app) concludeCell(r api.RunResult) error {
	if a.json {
		if err := a.event(api.EventResult, r); err != nil {
			return err
		}
	} else {
		a.remark(r)
		if r.Value != "" {
			cut := ""
			if r.Cut {
				cut = " … (cut)"
			}
			if _, err := fmt.Fprintln(a.stdout, r.Value+cut); err != nil {
				return err
			}
		}
	}
	switch {
	case r.Error != nil:
		return r.Error
	case r.Exit != nil:
		return &exitError{exitFailed, api.Errorf(api.CodeNoInterpreter, "the cell ended its interpreter with exit code %d", r.Exit.Code).
			WithRemedy("roll the sandbox back")}
	case r.Status != api.CellOK:
		return &exitError{exitFailed, nil} // its traceback is on stderr
	}
	return nil
}

func (a *app) sandboxExecCommand() *cobra.Command {
	var r api.ExecRequest
	var env []string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "exec SANDBOX -- PROGRAM [ARG…]", Short: "Run a program in a sandbox", Args: cobra.MinimumNArgs(2),
		Long: `Exec runs a program as the job's user in /workspace. It ends with the program's exit
code (128 + n after signal n), with 124 when the time is over, and with 125 when
Thaw itself refused or failed. There is nothing on standard input.`,
		Example: "  thaw sandbox exec $SB -- ls -l", ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			r.Argv, r.TimeoutSeconds = args[1:], wallSeconds(timeout)
			if r.Argv[0] == "--" { // flags end at the sandbox already
				r.Argv = r.Argv[1:]
			}
			if r.Env, err = parseEnv(env); err != nil {
				return refused(err)
			}
			var result api.RunResult
			err = a.withClient(func(c *client.Client) (err error) {
				result, err = c.RunExec(cmd.Context(), args[0], r, a.watcher())
				return err
			})
			if err != nil {
				return refused(err)
			}
			return a.concludeExec(cmd.Context(), result)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // what follows the sandbox is the program's
	f.StringArrayVar(&env, "env", nil, "NAME=VALUE for the program's environment (repeatable)")
	f.DurationVar(&timeout, "timeout", 0, "when the program is ended (default 5m)")
	return cmd
}

func (a *app) concludeExec(ctx context.Context, r api.RunResult) error {
	if a.json {
		if err := a.event(api.EventResult, r); err != nil {
			return refused(err)
		}
	} else {
		a.remark(r)
	}
	switch {
	case r.Error != nil && r.Error.Code == api.CodeTimedOut:
		return &exitError{exitTimedOut, r.Error}
	case r.Error != nil:
		return refused(r.Error)
	case r.Exit == nil:
		return refused(api.Errorf(api.CodeInternal, "the daemon gave no exit code"))
	case r.Exit.Code != 0:
		return &exitError{r.Exit.Code, nil}
	}
	return nil
}

// remark says what is worth knowing beside the result.
func (a *app) remark(r api.RunResult) {
	if r.Checkpoint != nil {
		fmt.Fprintln(a.stderr, "thaw: "+shortID(r.Checkpoint.Snapshot)+": "+recordLine(*r.Checkpoint))
	}
	for i, s := range []api.StreamInfo{r.Stdout, r.Stderr} {
		if s.Dropped > 0 {
			fmt.Fprintf(a.stderr, "thaw: %d bytes of %s were dropped\n", s.Dropped, []string{"stdout", "stderr"}[i])
		}
	}
}
