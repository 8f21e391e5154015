// Command thaw-bench measures Thaw, where it can side by side with QEMU's
// microvm. `thaw bench` runs it. DEFINITIONS.md says what each metric is.
//
// Exit codes: 0 when everything was measured, 1 when something was not, 2 for a
// command line that is not understood.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"thaw/bench/suite"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	root := &cobra.Command{Use: "thaw-bench", Short: "Measure Thaw", SilenceUsage: true, SilenceErrors: true}
	understood, complete := false, false
	var cfg suite.Config
	var asJSON bool
	start := &cobra.Command{
		Use: "start", Short: "Measure cold start, exec, memory, and block and network beside QEMU", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			understood = true
			cfg.Progress = stderr
			if cfg.Bin == "" {
				exe, err := os.Executable()
				if err != nil {
					return fmt.Errorf("thaw-bench: find the other programs: %w", err)
				}
				cfg.Bin = filepath.Dir(exe)
			}
			complete, err = suite.Run(cmd.Context(), cfg, output(stdout, asJSON))
			return err
		},
	}
	f := start.Flags()
	f.BoolVar(&cfg.Quick, "quick", false, "fewer samples: done within two minutes")
	f.StringVar(&cfg.RawDir, "raw", "", "store every sample in a file of this folder")
	f.StringSliceVar(&cfg.Only, "only", nil, "measure only these metrics, by name, with commas between (and those that come with them)")
	f.BoolVar(&cfg.NoACPI, "qemu-no-acpi", false, "compare with QEMU's microvm without ACPI: not its default, and faster")
	f.StringVar(&cfg.Kernel, "kernel", "", "path of the guest kernel (default: the tuned one)")
	f.StringVar(&cfg.Bin, "bin", "", "folder of thawd, thaw-vmm, thaw-init and bench-guest (default: that of thaw-bench)")
	root.PersistentFlags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	root.AddCommand(start)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "thaw-bench: "+strings.TrimPrefix(err.Error(), "thaw-bench: "))
		if !understood {
			return 2
		}
		return 1
	case understood && !complete:
		return 1
	}
	return 0
}

// output prints results as they come.
func output(w io.Writer, asJSON bool) suite.Output {
	if asJSON {
		e := json.NewEncoder(w)
		return suite.Output{
			Host:    func(string) {},
			Metric:  func(m suite.Metric) { _ = e.Encode(m) }, // nowhere else to say that stdout is gone
			Failure: func(f suite.Failure) { _ = e.Encode(f) },
		}
	}
	return suite.Output{
		Host: func(host string) {
			fmt.Fprintf(w, "host: %s\n%-24s %9s %9s %9s %-6s %4s\n", host, "metric", "p50", "p95", "p99", "unit", "n")
		},
		Metric: func(m suite.Metric) { fmt.Fprintln(w, m.Text()) },
		Failure: func(f suite.Failure) {
			fmt.Fprintf(w, "%-24s not measured: %s\n%24s → %s\n", f.Name, f.Error, "", f.Remedy)
		},
	}
}
