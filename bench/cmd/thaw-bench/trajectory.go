package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"thaw/bench/checkpoint"
)

// trajectory runs a tree search with checkpoints.
func (p *program) trajectory() *cobra.Command {
	cfg := checkpoint.TrajectoryConfig{}
	c := &cobra.Command{
		Use: "trajectory", Short: "Run a tree search on a small repository, and measure what checkpoints cost it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := p.begin(); err != nil {
				return err
			}
			cfg.Bin, cfg.Progress = p.bin, p.stderr
			if cfg.Quick {
				if !cmd.Flags().Changed("expansions") {
					cfg.Expansions = 20
				}
				if !cmd.Flags().Changed("rollbacks") {
					cfg.Rollbacks = 9
				}
			}
			p.complete, err = checkpoint.RunTrajectory(cmd.Context(), cfg, p.trajectoryOutput())
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&cfg.Quick, "quick", false, "20 expansions and 9 rollbacks")
	f.IntVar(&cfg.Expansions, "expansions", 100, "steps: each is an edit and a run of all tests")
	f.IntVar(&cfg.Rollbacks, "rollbacks", 49, "after how many of them the search goes back to an earlier one")
	f.StringVar(&cfg.Run, "run", checkpoint.RunExec, "how tests are run: exec (a program of their own) or cell (in the interpreter that edits)")
	f.StringSliceVar(&cfg.Policies, "policies", []string{"never", "every-step", "every:5"}, "policies to compare, by name, with commas between")
	f.StringSliceVar(&cfg.Trackers, "trackers", []string{"pagemap", "dirty-log", "dirty-ring", "uffd-wp", "uffd-wp-async", "full"},
		"trackers to compare, with a checkpoint after every step")
	f.StringVar(&cfg.RawDir, "raw", "", "store every sample, and a record of each checkpoint, in files of this folder")
	f.StringVar(&cfg.Kernel, "kernel", "", "path of the guest kernel (default: the tuned one)")
	return c
}

// trajectoryOutput prints results as they come.
func (p *program) trajectoryOutput() checkpoint.TrajectoryOutput {
	warning := p.busy
	if p.json {
		e := json.NewEncoder(p.stdout)
		return checkpoint.TrajectoryOutput{
			Host: func(string) {}, Warning: warning,
			Trajectory: func(t checkpoint.Trajectory) { _ = e.Encode(t) }, // nowhere else to say that stdout is gone
		}
	}
	return checkpoint.TrajectoryOutput{
		Host: func(host string) { fmt.Fprintf(p.stdout, "host: %s\n%s\n", host, checkpoint.TrajectoryHead()) }, Warning: warning,
		Trajectory: func(t checkpoint.Trajectory) { fmt.Fprintln(p.stdout, t.Text()) },
	}
}
