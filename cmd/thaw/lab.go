package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"thaw/client"
	"thaw/lab"
)

func (a *app) labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "lab", Short: "Use the lab: an emulated host with ordinary KVM",
		Long: "The lab is an emulated machine with KVM and every cgroup controller, for hosts that lack either. It is slow;\nits times say nothing about Thaw.",
	}
	up := &cobra.Command{
		Use: "up", Short: "Start the lab in the background, with a daemon in it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.labUp(cmd.Context()) },
	}
	down := &cobra.Command{
		Use: "down", Short: "Stop the lab", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return lab.Down(cmd.Context(), lab.DefaultStateDir()) },
	}
	status := &cobra.Command{
		Use: "status", Short: "Say how the lab is", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			s, err := lab.ReadStatus(lab.DefaultStateDir())
			if err != nil {
				return err
			}
			return a.printLab(s)
		},
	}
	run := &cobra.Command{
		Use: "run -- COMMAND [ARG…]", Short: "Run a command in the lab that is up", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.labRun(cmd.Context(), args) },
	}
	test := &cobra.Command{
		Use: "test PACKAGE…", Short: "Run Go tests of this source tree in a lab of their own", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.labTest(cmd.Context(), args) },
	}
	serve := &cobra.Command{
		Use: "serve STATE-DIR", Hidden: true, Args: cobra.ExactArgs(1), // what up starts in the background
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM)
			defer stop()
			return lab.Serve(ctx, args[0], slog.New(slog.NewTextHandler(os.Stderr, nil)))
		},
	}
	cmd.AddCommand(up, down, status, run, test, serve)
	return cmd
}

// labUp starts a lab whose daemon answers on the lab's socket.
func (a *app) labUp(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("thaw: find this program: %w", err)
	}
	s, err := lab.Up(ctx, lab.Options{
		Service: &lab.Command{Argv: []string{filepath.Join(filepath.Dir(self), "thawd")}, Env: lab.Environ()},
		Forward: map[string]string{client.LabSocket(): client.DefaultSocket},
	}, []string{self, "lab", "serve"})
	if err != nil {
		return err
	}
	return a.printLab(s)
}

func (a *app) printLab(s lab.Status) error {
	if a.json {
		return a.printJSON(s)
	}
	fmt.Fprintf(a.stdout, "lab %s", s.State)
	if s.State == lab.StateUp {
		fmt.Fprintf(a.stdout, ", up after %.0f s, %d restarts, daemon %s", s.BootSeconds, s.Restarts, s.Service)
	}
	fmt.Fprintln(a.stdout)
	for socket := range s.Forward {
		fmt.Fprintln(a.stdout, "socket", socket)
	}
	if s.Error != "" {
		fmt.Fprintln(a.stdout, s.Error)
	}
	return nil
}

func (a *app) labRun(ctx context.Context, argv []string) error {
	c, err := lab.Attach(lab.DefaultStateDir())
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("thaw: find working folder: %w", err)
	}
	exit, err := c.Run(ctx, lab.Command{Argv: argv, Env: lab.Environ(), Dir: dir, Stdout: a.stdout, Stderr: a.stderr})
	if err != nil {
		return err
	}
	if exit != 0 {
		return &exitError{code: exit}
	}
	return nil
}

// labTestTimeout bounds the tests of one package in the lab.
const labTestTimeout = 40 * time.Minute

// labTest builds the packages' tests here and runs them in a lab that ends
// with them.
func (a *app) labTest(ctx context.Context, packages []string) (err error) {
	bins, err := os.MkdirTemp("", "thaw-lab-tests-")
	if err != nil {
		return fmt.Errorf("thaw: make folder for test binaries: %w", err)
	}
	defer os.RemoveAll(bins)
	tests, err := lab.BuildTests(ctx, ".", bins, packages)
	if err != nil {
		return err
	}
	// One CPU: with two, the emulator's stale translations of patched code
	// (docs/lab.md) end the lab or a guest in it within minutes of such load.
	l, err := lab.Start(ctx, lab.Options{CPUs: 1, Log: slog.New(slog.NewTextHandler(a.stderr, nil))})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("thaw: find this program: %w", err)
	}
	for i := range tests {
		tests[i].Env = append(lab.Environ(), "THAW_BIN="+filepath.Dir(self), "REQUIRE_KVM=1")
		tests[i].Args = append(tests[i].Args, "-test.v") // shows that it goes on
		tests[i].Timeout = labTestTimeout
	}
	report, err := lab.Test(ctx, l, tests, a.stdout)
	fmt.Fprintf(a.stdout, "lab: %d packages passed, %d failed; %d restarts of the lab %v\n",
		len(report.Passed), len(report.Failed), l.Status().Restarts, report.Repeated)
	if err == nil && len(report.Failed) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}
