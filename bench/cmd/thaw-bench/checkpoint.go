package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"thaw/bench/checkpoint"
	"thaw/bench/report"
)

// checkpoint measures restores, checkpoints, rollbacks and forks.
func (p *program) checkpoint() *cobra.Command {
	var cfg checkpoint.Config
	var phases bool
	c := &cobra.Command{
		Use: "checkpoint", Short: "Measure restore, checkpoint, rollback, fork, and memory and jobs of restored machines", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := p.begin(); err != nil {
				return err
			}
			cfg.Bin, cfg.Progress = p.bin, p.stderr
			p.complete, err = checkpoint.Run(cmd.Context(), cfg, p.checkpointOutput(phases))
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&cfg.Quick, "quick", false, "30 samples of most metrics: done within five minutes")
	f.IntVar(&cfg.N, "samples", 0, "samples of each metric (default: 200)")
	f.StringVar(&cfg.RawDir, "raw", "", "store every sample in a file of this folder")
	f.StringSliceVar(&cfg.Only, "only", nil, "measure only these metrics, by name, with commas between (and those that come with them)")
	f.BoolVar(&phases, "phases", false, "print the median of each phase, too")
	f.StringVar(&cfg.Kernel, "kernel", "", "path of the guest kernel (default: the tuned one)")
	return c
}

// checkpointOutput prints results as they come.
func (p *program) checkpointOutput(phases bool) checkpoint.Output {
	warning := p.busy
	if p.json {
		e := json.NewEncoder(p.stdout)
		return checkpoint.Output{
			Host:    func(string) {},
			Warning: warning,
			Metric:  func(m checkpoint.Metric) { _ = e.Encode(m) }, // nowhere else to say that stdout is gone
			Failure: func(f report.Failure) { _ = e.Encode(f) },
		}
	}
	return checkpoint.Output{
		Host:    func(host string) { fmt.Fprintf(p.stdout, "host: %s\n%s\n", host, checkpoint.Head()) },
		Warning: warning,
		Metric: func(m checkpoint.Metric) {
			fmt.Fprintln(p.stdout, m.Text())
			for _, ph := range m.Phases {
				if phases {
					fmt.Fprintf(p.stdout, "    %-40s %9.3f ms\n", ph.Name, ph.MS)
				}
			}
		},
		Failure: p.notMeasured,
	}
}
