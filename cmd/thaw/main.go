// Command thaw runs Python and Node programs in microVMs: the command line of the
// daemon thawd.
//
//	thaw run --in sales.csv -- main.py --month 3
//
// Exit codes: those of `thaw run` are in run.go; every other command ends with 0,
// 1 after a failure, or 2 when the command line is not understood.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/client"
)

// Exit codes of all commands but run.
const (
	exitFailed = 1
	exitUsage  = 2
)

// exitError ends the program with a code. Its error, if there is one, is printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// app is what commands share.
type app struct {
	stdout, stderr io.Writer
	host           string
	json           bool
	entered        bool // a command was found and its flags are good
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var exit *exitError
	if errors.As(err, &exit) {
		if exit.err != nil {
			a.printError(exit.err)
		}
		return exit.code
	}
	if !a.entered {
		a.printError(api.Errorf(api.CodeRequestInvalid, "%s", err).WithRemedy("`%s --help` shows how it is used", cmd.CommandPath()))
		return exitUsage
	}
	a.printError(err)
	return exitFailed
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "thaw", Short: "Run Python and Node programs in microVMs", SilenceUsage: true, SilenceErrors: true,
		PersistentPreRun: func(*cobra.Command, []string) { a.entered = true },
	}
	root.PersistentFlags().StringVar(&a.host, "host", "", "daemon to talk to: local, lab, or unix:///path (default $THAW_HOST, then local)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(a.runCommand(), a.doctorCommand(), a.infoCommand(), a.jobsCommand(), a.sandboxCommand(), a.snapshotCommand(), a.kernelCommand(), a.imageCommand(), a.labCommand(), a.benchCommand(), a.versionCommand())
	return root
}

// client makes the client for the chosen host.
func (a *app) client() (*client.Client, error) { return client.New(a.host) }

func (a *app) printError(err error) { api.PrintError(a.stderr, "thaw", err, a.json) }

// printJSON prints a value as one indented document.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
