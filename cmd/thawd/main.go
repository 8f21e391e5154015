// Command thawd is Thaw's daemon: it serves the API on a Unix socket and runs
// each job in a microVM of its own.
//
// It starts only on a host that can enforce what it promises; with --dev it also
// starts where cgroup controllers are missing, and says so at start, in /v1/info
// and in each job's result.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/client"
	"thaw/internal/version"
)

// options are the command line's.
type options struct {
	socket, group, stateDir, kernel, images, bin string
	dev, json                                    bool
	templates                                    string
	tenantMachines                               int
	snapshotBytes                                int64
	genericShells, boundShells, rehearsedShells  int
	overcommit                                   float64
	readyTimeout                                 time.Duration
}

func main() {
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run returns the exit code: 0 after an orderly end, 1 after a failure, 2 for a
// command line that is not understood.
func run(args []string, stderr io.Writer) int {
	var o options
	started := false
	cmd := &cobra.Command{
		Use: "thawd", Short: "Thaw's daemon: runs jobs in microVMs", Version: version.Get().Short(),
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			started = true
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return serve(ctx, o, logger(stderr, o.json))
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.socket, "socket", client.DefaultSocket, "Unix socket to listen on (mode 0660)")
	f.StringVar(&o.group, "socket-group", "", "group that may connect (name or id); default: root's")
	f.StringVar(&o.stateDir, "state-dir", "/var/lib/thaw", "inputs, artifacts and running machines")
	f.StringVar(&o.kernel, "kernel", "tuned", "guest kernel: tuned, stock, or a file")
	f.StringVar(&o.images, "images", "", "folder of images (python.erofs, …); default: those made by thaw image build")
	f.StringVar(&o.bin, "bin", executableDir(), "folder of thaw-vmm and thaw-init")
	f.BoolVar(&o.dev, "dev", false, "development mode: start although the host lacks cgroup controllers")
	f.BoolVar(&o.json, "json", false, "write logs and errors as JSON")
	f.StringVar(&o.templates, "templates", "on", "on: restore machines from templates, and offer sandboxes; off: boot each machine")
	f.Int64Var(&o.snapshotBytes, "snapshot-bytes", 0, "what snapshots of all users may take on disk (default: half of what is free)")
	f.IntVar(&o.genericShells, "generic-shells", 2, "shells kept ready for any template of a class, of each class in use")
	f.IntVar(&o.boundShells, "bound-shells", 0, "shells kept ready with the template laid over them, not run, of each template in use")
	f.IntVar(&o.rehearsedShells, "rehearsed-shells", 1, "shells kept ready and rehearsed, of each template in use")
	f.Float64Var(&o.overcommit, "overcommit", 1, "promise machines this many times what the host has: forks share most of their memory and disk, idle ones need no CPU")
	f.IntVar(&o.tenantMachines, "tenant-machines", 0, "machines that one user may have at a time; more jobs of theirs wait (default: all that the host has)")
	f.DurationVar(&o.readyTimeout, "ready-timeout", 0, "how long a guest may take to be ready (default 30s, in the lab 5m)")
	cmd.SetArgs(args)
	cmd.SetErr(stderr)
	err := cmd.ExecuteContext(context.Background())
	if err == nil {
		return 0
	}
	api.PrintError(stderr, "thawd", err, o.json)
	if !started {
		return 2
	}
	return 1
}

func logger(w io.Writer, asJSON bool) *slog.Logger {
	if asJSON {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

func executableDir() string {
	exe, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(exe)
}
