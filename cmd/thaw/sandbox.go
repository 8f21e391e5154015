package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/client"
)

func (a *app) sandboxCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "sandbox", Short: "Hold a machine: run code in it, save it, put it back, fork it", Aliases: []string{"sb"},
		Long: `A sandbox is a machine that you hold until you remove it, or its lifetime is over.
Its interpreters wait warm: cells of code share their variables. It can be saved
(checkpoint), put back in place (rollback), and multiplied (fork), in milliseconds.

Ids go to stdout, one a line, so that scripts can take them; what an operation took
goes to stderr as one line, and with --json to stdout in full.`,
	}
	cmd.AddCommand(
		a.sandboxCreateCommand(),
		&cobra.Command{Use: "ls", Short: "List your sandboxes, newest first", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *client.Client) error { return a.listSandboxes(cmd.Context(), c) })
		}},
		a.oneSandbox("show SANDBOX", "Show a sandbox", func(ctx context.Context, c *client.Client, id string) error {
			s, err := c.Sandbox(ctx, id)
			if err != nil {
				return err
			}
			return a.printSandbox(s)
		}),
		a.sandboxCodeCommand(), a.sandboxExecCommand(),
		a.sandboxCheckpointCommand(), a.sandboxRollbackCommand(), a.sandboxForkCommand(),
		a.oneSandbox("pause SANDBOX", "Stop a sandbox's vCPUs; its memory stays", a.switchSandbox((*client.Client).Pause)),
		a.oneSandbox("resume SANDBOX", "Let a paused sandbox run on", a.switchSandbox((*client.Client).Resume)),
		a.sandboxRemoveCommand(),
	)
	return cmd
}

// oneSandbox makes a command of one sandbox and nothing else.
func (a *app) oneSandbox(use, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error { return do(cmd.Context(), c, args[0]) })
		},
	}
}

func (a *app) sandboxCreateCommand() *cobra.Command {
	var r api.SandboxRequest
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Make a sandbox from an image or a snapshot, and print its id", Args: cobra.NoArgs,
		Example: "  SB=$(thaw sandbox create --image python)\n  thaw sandbox create --snapshot good",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.LifetimeSeconds = wallSeconds(lifetime)
			return a.withClient(func(c *client.Client) error {
				s, err := c.CreateSandbox(cmd.Context(), r)
				if err != nil {
					return err
				}
				return a.tell(s, []string{s.ID}, recordLine(s.Record))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Image, "image", "", "image to start from: python, node or dual")
	f.StringVar(&r.Snapshot, "snapshot", "", "snapshot to start from: id, the beginning of one, or name")
	f.Int64Var(&r.MemoryMiB, "memory", 0, "MiB of the machine, rounded up to a class (default 512)")
	f.IntVar(&r.VCPUs, "vcpus", 0, "vCPUs, rounded up to a class (default 1)")
	f.DurationVar(&lifetime, "lifetime", 0, "when it is removed by itself (default 1h, at most 24h)")
	f.StringVar(&r.Policy, "policy", "", "when it is checkpointed by itself: never, every-step, every:N, when-changed[:PAGES], after a cell or program (default never)")
	f.StringVar(&r.Tracker, "tracker", "", "what finds the changed pages of its checkpoints, of those that thaw info lists (default: the daemon decides)")
	_ = cmd.RegisterFlagCompletionFunc("image", cobra.FixedCompletions(imageNames, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("snapshot", a.completeSnapshots)
	return cmd
}

func (a *app) sandboxCheckpointCommand() *cobra.Command {
	var r api.CheckpointRequest
	var labels []string
	var ahead bool
	cmd := &cobra.Command{
		Use: "checkpoint SANDBOX", Short: "Save a sandbox, which runs on, and print the snapshot's id", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.Labels, err = parsePairs("--label", labels); err != nil {
				return err
			}
			if cmd.Flags().Changed("copy-ahead") {
				r.CopyAhead = &ahead
			}
			return a.withClient(func(c *client.Client) error {
				answer, err := c.Checkpoint(cmd.Context(), args[0], r)
				if err != nil {
					return err
				}
				return a.tell(answer, []string{answer.Snapshot.ID}, recordLine(answer.Record))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Name, "name", "", "name to find it by")
	f.StringArrayVar(&labels, "label", nil, "NAME=VALUE to keep with it (repeatable)")
	f.StringVar(&r.Tracker, "tracker", "", "what finds the changed pages, of those that thaw info lists (default: the sandbox's)")
	f.BoolVar(&ahead, "copy-ahead", false, "copy most pages before the pause (default: the daemon decides)")
	f.BoolVar(&r.Durable, "durable", false, "wait until it would survive a crash of the host")
	return cmd
}

func (a *app) sandboxRollbackCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rollback SANDBOX [SNAPSHOT]", Short: "Put a sandbox back in place: to a snapshot, or to its last", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			to := ""
			if len(args) > 1 {
				to = args[1]
			}
			return a.withClient(func(c *client.Client) error {
				s, err := c.Rollback(cmd.Context(), args[0], to)
				if err != nil {
					return err
				}
				return a.tell(s, nil, recordLine(s.Record))
			})
		},
	}
}

func (a *app) sandboxForkCommand() *cobra.Command {
	var r api.ForkRequest
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use: "fork SANDBOX [COUNT]", Short: "Make sandboxes that start where this one is, and print their ids", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Count, r.LifetimeSeconds = 1, wallSeconds(lifetime)
			if len(args) > 1 {
				n, err := strconv.Atoi(args[1])
				if err != nil || n < 1 {
					return api.Errorf(api.CodeRequestInvalid, "%q is no number of forks", args[1]).WithRemedy("write for example: thaw sandbox fork %s 3", args[0])
				}
				r.Count = n
			}
			return a.withClient(func(c *client.Client) error {
				answer, err := c.Fork(cmd.Context(), args[0], r)
				if err != nil {
					return err
				}
				ids := make([]string, 0, len(answer.Sandboxes))
				for _, s := range answer.Sandboxes {
					ids = append(ids, s.ID)
				}
				return a.tell(answer, ids, forkLine(answer))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Snapshot, "snapshot", "", "fork this snapshot instead of the sandbox as it is now")
	f.DurationVar(&lifetime, "lifetime", 0, "when the new ones are removed by themselves (default 1h, at most 24h)")
	_ = cmd.RegisterFlagCompletionFunc("snapshot", a.completeSnapshots)
	return cmd
}

func (a *app) sandboxRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm SANDBOX…", Short: "Destroy sandboxes; their snapshots stay", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSandboxes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				for _, id := range args {
					if err := c.RemoveSandbox(cmd.Context(), id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

// switchSandbox is pause or resume.
func (a *app) switchSandbox(do func(*client.Client, context.Context, string) (api.Sandbox, error)) func(context.Context, *client.Client, string) error {
	return func(ctx context.Context, c *client.Client, id string) error {
		s, err := do(c, ctx, id)
		if err != nil {
			return err
		}
		return a.tell(s, nil, recordLine(s.Record))
	}
}

// tell prints an answer: all of it as JSON, or its ids, and a line of times beside.
func (a *app) tell(v any, ids []string, line string) error {
	if a.json {
		return a.printJSON(v)
	}
	for _, id := range ids {
		if _, err := fmt.Fprintln(a.stdout, id); err != nil {
			return err
		}
	}
	fmt.Fprintln(a.stderr, "thaw: "+line)
	return nil
}

// parsePairs reads NAME=VALUE flags.
func parsePairs(flag string, pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, api.Errorf(api.CodeRequestInvalid, "%s %q is not NAME=VALUE", flag, p)
		}
		out[k] = v
	}
	return out, nil
}

// completeSandboxes offers sandbox ids to the shell.
func (a *app) completeSandboxes(cmd *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
	// A daemon that does not answer has nothing to offer.
	_ = a.withClient(func(c *client.Client) error {
		list, err := c.Sandboxes(cmd.Context())
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) listSandboxes(ctx context.Context, c *client.Client) error {
	list, err := c.Sandboxes(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(api.SandboxList{Sandboxes: list})
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SANDBOX\tSTATE\tIMAGE\tMEMORY\tVCPUS\tSNAPSHOT\tAGE")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d MiB\t%d\t%s\t%s\n", s.ID, s.State, safeText(s.Image), s.MemoryMiB, s.VCPUs, shortID(s.Snapshot), age(s.Created))
	}
	return w.Flush()
}

func (a *app) printSandbox(s api.Sandbox) error {
	if a.json {
		return a.printJSON(s)
	}
	w := a.stdout
	fmt.Fprintf(w, "%s  %s  %s, %d MiB, %d vCPU(s)\n", s.ID, s.State, safeText(s.Image), s.MemoryMiB, s.VCPUs)
	fmt.Fprintf(w, "  made from   %s\n", s.Origin)
	fmt.Fprintf(w, "  continues   %s\n", s.Snapshot)
	fmt.Fprintf(w, "  generation  %d\n", s.Generation)
	fmt.Fprintf(w, "  policy      %s\n", s.Policy)
	fmt.Fprintf(w, "  expires     %s\n", s.Expires.Local().Format(time.DateTime))
	fmt.Fprintf(w, "  last        %s\n", recordLine(s.Record))
	for _, p := range s.Record.Phases {
		fmt.Fprintf(w, "    %-24s %8.2f ms\n", p.Name, p.MS)
	}
	if s.Error != nil {
		fmt.Fprintf(w, "  %s\n", s.Error.Text())
	}
	return nil
}
