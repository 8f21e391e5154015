package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"thaw/bench/report"
	"thaw/bench/suite"
)

// start measures what a cold start takes.
func (p *program) start() *cobra.Command {
	var cfg suite.Config
	c := &cobra.Command{
		Use: "start", Short: "Measure cold start, exec, memory, and block and network beside QEMU", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := p.begin(); err != nil {
				return err
			}
			cfg.Bin, cfg.Progress = p.bin, p.stderr
			p.complete, err = suite.Run(cmd.Context(), cfg, p.startOutput())
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&cfg.Quick, "quick", false, "fewer samples: done within two minutes")
	f.StringVar(&cfg.RawDir, "raw", "", "store every sample in a file of this folder")
	f.StringSliceVar(&cfg.Only, "only", nil, "measure only these metrics, by name, with commas between (and those that come with them)")
	f.BoolVar(&cfg.NoACPI, "qemu-no-acpi", false, "compare with QEMU's microvm without ACPI: not its default, and faster")
	f.StringVar(&cfg.Kernel, "kernel", "", "path of the guest kernel (default: the tuned one)")
	return c
}

// startOutput prints results as they come.
func (p *program) startOutput() suite.Output {
	if p.json {
		e := json.NewEncoder(p.stdout)
		return suite.Output{
			Host:    func(string) {},
			Metric:  func(m suite.Metric) { _ = e.Encode(m) }, // nowhere else to say that stdout is gone
			Failure: func(f report.Failure) { _ = e.Encode(f) },
		}
	}
	return suite.Output{
		Host: func(host string) {
			fmt.Fprintf(p.stdout, "host: %s\n%-24s %9s %9s %9s %-6s %4s\n", host, "metric", "p50", "p95", "p99", "unit", "n")
		},
		Metric:  func(m suite.Metric) { fmt.Fprintln(p.stdout, m.Text()) },
		Failure: p.notMeasured,
	}
}

func (p *program) notMeasured(f report.Failure) {
	fmt.Fprintf(p.stdout, "%-24s not measured: %s\n%24s → %s\n", f.Name, f.Error, "", f.Remedy)
}
