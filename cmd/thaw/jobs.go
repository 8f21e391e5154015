package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/client"
)

func (a *app) jobsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "jobs", Short: "List, show, cancel and remove jobs, and fetch their artifacts"}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List your jobs, newest first", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *client.Client) error { return a.listJobs(cmd.Context(), c) })
		}},
		a.jobCommand("show", "Show a job", func(ctx context.Context, c *client.Client, id string) error {
			job, err := c.Job(ctx, id)
			if err != nil {
				return err
			}
			return a.printJob(job)
		}),
		a.jobCommand("cancel", "Cancel a job", func(ctx context.Context, c *client.Client, id string) error {
			job, err := c.Cancel(ctx, id)
			if err != nil {
				return err
			}
			return a.printJob(job)
		}),
		a.artifactsCommand(),
		a.jobCommand("rm", "Remove a finished job with its artifacts", func(ctx context.Context, c *client.Client, id string) error {
			return c.Delete(ctx, id)
		}),
	)
	return cmd
}

// jobCommand makes a command of one job.
func (a *app) jobCommand(name, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " JOB", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error { return do(cmd.Context(), c, args[0]) })
		},
		ValidArgsFunction: a.completeJobs,
	}
}

func (a *app) withClient(do func(*client.Client) error) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

// completeJobs offers job ids to the shell.
func (a *app) completeJobs(cmd *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		// A daemon that does not answer has nothing to offer.
		_ = a.withClient(func(c *client.Client) error {
			jobs, err := c.Jobs(cmd.Context())
			for _, j := range jobs {
				ids = append(ids, j.ID)
			}
			return err
		})
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) listJobs(ctx context.Context, c *client.Client) error {
	jobs, err := c.Jobs(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(api.JobList{Jobs: jobs})
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "JOB\tSTATE\tIMAGE\tSCRIPT\tCREATED")
	for _, j := range jobs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", j.ID, j.State, j.Runtime, j.Script, j.Created.Local().Format(time.DateTime))
	}
	return w.Flush()
}

func (a *app) printJob(j api.Job) error {
	if a.json {
		return a.printJSON(j)
	}
	w := a.stdout
	fmt.Fprintf(w, "%s  %s  %s %s\n", j.ID, j.State, j.Runtime, j.Script)
	for i, h := range j.History {
		took := ""
		if i+1 < len(j.History) {
			took = j.History[i+1].At.Sub(h.At).Round(10 * time.Microsecond).String()
		}
		fmt.Fprintf(w, "  %-14s %s\n", h.State, took)
	}
	r := j.Result
	if r == nil {
		return nil
	}
	if r.Exit != nil {
		fmt.Fprintf(w, "  exit code %d (%s)\n", r.Exit.Code, r.Exit.Cause)
	}
	if r.Error != nil {
		fmt.Fprintf(w, "  %s\n", r.Error.Text())
	}
	fmt.Fprintf(w, "  wall %d ms, cpu %d ms, peak memory %d MiB\n", r.Usage.WallMS, r.Usage.CPUUserMS+r.Usage.CPUSystemMS, r.Usage.PeakMemoryBytes>>20)
	for _, p := range r.Phases {
		fmt.Fprintf(w, "  phase %-20s %8.2f ms\n", p.Name, p.MS)
	}
	for _, art := range r.Artifacts {
		fmt.Fprintf(w, "  artifact %s  %s, %d bytes, sha256 %s\n", art.Path, art.MediaType, art.Size, art.SHA256)
	}
	for _, rej := range r.Rejected {
		fmt.Fprintf(w, "  not taken %s  %s\n", rej.Path, rej.Reason)
	}
	if more := r.RejectedCount - len(r.Rejected); more > 0 {
		fmt.Fprintf(w, "  not taken %d more\n", more)
	}
	return nil
}
