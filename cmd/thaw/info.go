package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/internal/version"
)

func (a *app) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "info", Short: "Describe the daemon, its host and what it enforces", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			defer c.Close()
			info, err := c.Info(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(info)
			}
			a.printInfo(info)
			return nil
		},
	}
}

func (a *app) printInfo(i api.Info) {
	w := a.stdout
	fmt.Fprintf(w, "thawd %s on a %s host (%s, Linux %s)\n", i.Version, i.Host.Kind, i.Host.CPUModel, i.Host.Kernel)
	fmt.Fprintf(w, "kernel    %s\n", assetText(i.Kernel))
	for _, r := range i.Runtimes {
		fmt.Fprintf(w, "image     %-7s %s  (%s)\n", r.Name, strings.Join(r.Suffixes, " "), assetText(r.Image))
	}
	fmt.Fprintf(w, "networks  %s\n", strings.Join(i.Networks, ", "))
	for n, r := range i.Runtimes {
		if n == 0 {
			fmt.Fprintf(w, "default   %s\n", limitsText(r.Defaults))
		} else if r.Defaults != i.Runtimes[0].Defaults {
			fmt.Fprintf(w, "default   of %s: %s\n", r.Name, limitsText(r.Defaults))
		}
	}
	fmt.Fprintf(w, "at most   %s\n", limitsText(i.Limits.Max))
	if t := i.Templates; t != nil {
		sizes := make([]string, 0, len(t.Classes))
		for _, c := range t.Classes {
			sizes = append(sizes, fmt.Sprintf("%d×%d", c.MemoryMiB, c.VCPUs))
		}
		fmt.Fprintf(w, "templates %s (MiB×vCPUs), %d MiB disk\n", strings.Join(sizes, " "), t.DiskBytes>>20)
		for _, tracker := range t.Trackers {
			if tracker.OK {
				fmt.Fprintf(w, "tracker   %s: %s\n", tracker.Name, tracker.About)
			} else {
				fmt.Fprintf(w, "NO        tracker %s: %s\n", tracker.Name, tracker.Error)
			}
		}
	} else {
		fmt.Fprintf(w, "templates off: every machine is booted\n")
	}
	fmt.Fprintf(w, "sandboxes %d\n", i.Sandboxes)
	fmt.Fprintf(w, "jobs      %d running, %d queued\n", i.Jobs.Running, i.Jobs.Queued)
	for _, e := range i.Enforced {
		fmt.Fprintf(w, "enforced  %s\n", e)
	}
	for _, e := range i.NotEnforced {
		fmt.Fprintf(w, "NOT       %s\n", e)
	}
}

func limitsText(l api.Limits) string {
	return fmt.Sprintf("%d MiB memory, %g CPUs, %d pids, %d s, %d MiB workspace, %d MiB output in %d files, %d MiB each of stdout and stderr",
		l.MemoryMiB, l.CPUCores, l.Pids, l.WallSeconds, l.WorkspaceBytes>>20, l.OutputBytes>>20, l.OutputFiles, l.StdoutBytes>>20)
}

func assetText(a api.Asset) string {
	if a.OK {
		return a.Path
	}
	return a.Error
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := version.Get()
			if a.json {
				return a.printJSON(v)
			}
			_, err := fmt.Fprintln(a.stdout, strings.TrimSpace("thaw "+v.Version+" "+v.Commit))
			return err
		},
	}
}
