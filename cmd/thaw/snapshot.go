package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/client"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "snapshot", Short: "List, show, merge, move and remove snapshots", Aliases: []string{"snap"},
		Long: `Snapshots are what sandboxes were saved as. A command takes a snapshot by its id, at
least six digits of it, or its name: the newest of that name.`,
	}
	cmd.AddCommand(
		&cobra.Command{Use: "ls", Short: "List your snapshots, newest first", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *client.Client) error { return a.listSnapshots(cmd.Context(), c) })
		}},
		&cobra.Command{Use: "tree", Short: "Show your snapshots by descent, with the sandboxes that continue them", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return a.withClient(func(c *client.Client) error {
					tree, err := c.SnapshotTree(cmd.Context())
					if err != nil {
						return err
					}
					if a.json {
						return a.printJSON(tree)
					}
					return printTree(a.stdout, tree, time.Now())
				})
			}},
		a.oneSnapshot("show SNAPSHOT", "Show a snapshot", func(ctx context.Context, c *client.Client, ref string) error {
			s, err := c.Snapshot(ctx, ref)
			if err != nil {
				return err
			}
			return a.printSnapshot(s)
		}),
		a.oneSnapshot("merge SNAPSHOT", "Make a checkpoint independent of the checkpoints below it", func(ctx context.Context, c *client.Client, ref string) error {
			s, err := c.MergeSnapshot(ctx, ref)
			if err != nil {
				return err
			}
			return a.tell(s, []string{s.ID}, fmt.Sprintf("merged: depth %d, %s on disk", s.Depth, size(s.Bytes)))
		}),
		a.snapshotExportCommand(), a.snapshotImportCommand(), a.snapshotRemoveCommand(), a.snapshotCollectCommand(),
	)
	return cmd
}

func (a *app) oneSnapshot(use, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeSnapshots,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error { return do(cmd.Context(), c, args[0]) })
		},
	}
}

func (a *app) snapshotExportCommand() *cobra.Command {
	var out string
	cmd := a.oneSnapshot("export SNAPSHOT --out FILE", "Write a snapshot, with all that it needs, as an archive",
		func(ctx context.Context, c *client.Client, ref string) (err error) {
			if out == "" {
				return api.Errorf(api.CodeRequestInvalid, "name the archive").WithRemedy("--out FILE, or --out - for standard output")
			}
			if out == "-" {
				return c.ExportSnapshot(ctx, ref, a.stdout)
			}
			// Under its name only when it is whole.
			part := out + ".part"
			f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
			if err != nil {
				return api.Errorf(api.CodeRequestInvalid, "the archive cannot be written").WithCause(err)
			}
			defer func() {
				if err != nil {
					os.Remove(part)
				}
			}()
			err = c.ExportSnapshot(ctx, ref, f)
			if cerr := f.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				return err
			}
			return os.Rename(part, out)
		})
	cmd.Flags().StringVar(&out, "out", "", "file to write, - for standard output")
	return cmd
}

func (a *app) snapshotImportCommand() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE | -", Short: "Take an archive in, and print the ids of what it brought", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r io.Reader = os.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return api.Errorf(api.CodeRequestInvalid, "the archive cannot be read").WithCause(err)
				}
				defer f.Close()
				r = f
			}
			return a.withClient(func(c *client.Client) error {
				list, err := c.ImportSnapshot(cmd.Context(), r)
				if err != nil {
					return err
				}
				var ids []string
				for _, s := range list {
					ids = append(ids, s.ID)
				}
				return a.tell(api.SnapshotList{Snapshots: list}, ids, fmt.Sprintf("%d snapshot(s) imported", len(list)))
			})
		},
	}
}

func (a *app) snapshotRemoveCommand() *cobra.Command {
	var cascade bool
	cmd := &cobra.Command{
		Use: "rm SNAPSHOT…", Short: "Delete snapshots", Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeSnapshots,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				all := api.Removed{Snapshots: []string{}}
				for _, ref := range args {
					r, err := c.RemoveSnapshot(cmd.Context(), ref, cascade)
					if err != nil {
						return err
					}
					all.Snapshots, all.Bytes = append(all.Snapshots, r.Snapshots...), all.Bytes+r.Bytes
				}
				return a.tell(all, nil, removedLine(all, "removed"))
			})
		},
	}
	cmd.Flags().BoolVar(&cascade, "cascade", false, "delete all that need them too")
	return cmd
}

func (a *app) snapshotCollectCommand() *cobra.Command {
	var r api.CollectRequest
	var keep string
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove the least recently used of your checkpoints that nothing needs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if keep != "" {
				n, err := parseBytes(keep)
				if err != nil {
					return api.Errorf(api.CodeRequestInvalid, "--keep %q is not understood", keep).WithCause(err)
				}
				r.KeepBytes = &n
			}
			return a.withClient(func(c *client.Client) error {
				removed, err := c.CollectSnapshots(cmd.Context(), r)
				if err != nil {
					return err
				}
				word := "removed"
				if r.DryRun {
					word = "would be removed:"
				}
				return a.tell(removed, removed.Snapshots, removedLine(removed, word))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&keep, "keep", "", "bytes of your snapshots that may stay, with K, M or G (default: your quota); 0 leaves none that nothing needs")
	f.BoolVar(&r.DryRun, "dry-run", false, "say what would go, and remove nothing")
	return cmd
}

func removedLine(r api.Removed, word string) string {
	return fmt.Sprintf("%s %d snapshot(s), %s", word, len(r.Snapshots), size(r.Bytes))
}

// completeSnapshots offers snapshots' names and ids to the shell.
func (a *app) completeSnapshots(cmd *cobra.Command, _ []string, _ string) (refs []string, _ cobra.ShellCompDirective) {
	// A daemon that does not answer has nothing to offer.
	_ = a.withClient(func(c *client.Client) error {
		list, err := c.Snapshots(cmd.Context())
		for _, s := range list {
			refs = append(refs, s.ID)
			if s.Name != "" {
				refs = append(refs, s.Name)
			}
		}
		return err
	})
	return refs, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) listSnapshots(ctx context.Context, c *client.Client) error {
	list, err := c.Snapshots(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(api.SnapshotList{Snapshots: list})
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SNAPSHOT\tNAME\tSTATE\tIMAGE\tSIZE\tDEPTH\tPARENT\tAGE")
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", shortID(s.ID), safeText(s.Name), s.State, safeText(s.Image), size(s.Bytes), s.Depth, shortID(s.Parent), age(s.Created))
	}
	return w.Flush()
}

func (a *app) printSnapshot(s api.Snapshot) error {
	if a.json {
		return a.printJSON(s)
	}
	w := a.stdout
	fmt.Fprintf(w, "%s  %s  %s\n", s.ID, s.Kind, s.State)
	for _, l := range []struct{ name, value string }{
		{"name", safeText(s.Name)}, {"image", safeText(s.Image)}, {"parent", s.Parent},
		{"machine", fmt.Sprintf("%d MiB, %d vCPU(s)", s.MemoryMiB, s.VCPUs)},
		{"size", fmt.Sprintf("%s, depth %d, %d child(ren)", size(s.Bytes), s.Depth, s.Children)},
		{"made", s.Created.Local().Format(time.DateTime)},
	} {
		if l.value != "" {
			fmt.Fprintf(w, "  %-9s %s\n", l.name, l.value)
		}
	}
	for k, v := range s.Labels {
		fmt.Fprintf(w, "  label     %s=%s\n", safeText(k), safeText(v))
	}
	for _, id := range s.Sandboxes {
		fmt.Fprintf(w, "  sandbox   %s\n", id)
	}
	if s.Record != nil {
		fmt.Fprintf(w, "  record    %s\n", recordLine(*s.Record))
		for _, p := range s.Record.Phases {
			fmt.Fprintf(w, "    %-24s %8.2f ms\n", p.Name, p.MS)
		}
	}
	if s.Error != nil {
		fmt.Fprintf(w, "  %s\n", s.Error.Text())
	}
	return nil
}
