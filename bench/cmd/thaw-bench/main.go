// Command thaw-bench measures Thaw, where it can side by side with QEMU's
// microvm. `thaw bench` runs it. DEFINITIONS.md says what each metric is.
//
// Exit codes: 0 when everything was measured, 1 when something was not, 2 for a
// command line that is not understood.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// program is what the commands share.
type program struct {
	stdout, stderr io.Writer
	json           bool
	bin            string // folder of the other programs
	understood     bool   // the command line was
	complete       bool   // everything was measured
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	p := &program{stdout: stdout, stderr: stderr}
	root := &cobra.Command{Use: "thaw-bench", Short: "Measure Thaw", SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().BoolVar(&p.json, "json", false, "print one JSON object a line")
	root.PersistentFlags().StringVar(&p.bin, "bin", "", "folder of thawd, thaw-vmm, thaw-init and bench-guest (default: that of thaw-bench)")
	root.AddCommand(p.start(), p.checkpoint(), p.trajectory())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "thaw-bench: "+strings.TrimPrefix(err.Error(), "thaw-bench: "))
		if !p.understood {
			return 2
		}
		return 1
	case p.understood && !p.complete:
		return 1
	}
	return 0
}

// begin is what each command does first.
func (p *program) begin() error {
	p.understood = true
	if p.bin != "" {
		return nil
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("thaw-bench: find the other programs: %w", err)
	}
	p.bin = filepath.Dir(exe)
	return nil
}

// busy warns of what makes figures worse.
func (p *program) busy(what string) {
	fmt.Fprintln(p.stderr, "bench: the host is busy, figures are worse than they would be: "+what)
}
