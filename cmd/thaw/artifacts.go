package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"thaw/api"
	"thaw/client"
)

// maxWarned is how many files that were not taken a run names on stderr.
const maxWarned = 10

// artifactsCommand fetches what a job left, after its run or from another machine
// of the user's.
func (a *app) artifactsCommand() *cobra.Command {
	var out string
	cmd := a.jobCommand("artifacts", "Fetch a finished job's artifacts", func(ctx context.Context, c *client.Client, id string) error {
		return a.fetchArtifacts(ctx, c, id, out)
	})
	cmd.Long = `Artifacts writes a finished job's artifacts to the folder of --out, as run does,
and lists them. The daemon keeps them until the job is removed, by thaw jobs rm
or for newer ones (the newest 64 jobs stay), or until it ends itself.`
	cmd.Flags().StringVar(&out, "out", "out", "folder for artifacts")
	return cmd
}

func (a *app) fetchArtifacts(ctx context.Context, c *client.Client, id, out string) error {
	if err := checkOut(out); err != nil {
		return err
	}
	m, err := c.Manifest(ctx, id)
	if err != nil {
		return err
	}
	if !m.State.Final() {
		return api.Errorf(api.CodeConflict, "job %s is %s: it has no artifacts yet", id, m.State).WithRemedy("fetch them when it has ended; `thaw jobs ls` says how far it is")
	}
	if err := a.save(ctx, c, id, m.Artifacts, out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(m)
	}
	for _, art := range m.Artifacts {
		fmt.Fprintln(a.stdout, artifactLine(art, out))
	}
	if len(m.Artifacts) == 0 {
		fmt.Fprintf(a.stderr, "thaw: job %s is %s and left no artifacts\n", id, m.State)
	}
	a.warnRejected(id, m.Rejected, m.RejectedCount)
	return nil
}

// save writes artifacts below a folder.
func (a *app) save(ctx context.Context, c *client.Client, id string, artifacts []api.Artifact, out string) error {
	err := c.SaveArtifacts(ctx, id, artifacts, out)
	if e := (*api.Error)(nil); err == nil || errors.As(err, &e) {
		return err
	}
	return api.Errorf(api.CodeInternal, "the artifacts of job %s cannot be saved", id).WithCause(err).
		WithRemedy("the daemon still has them: `thaw jobs artifacts %s --out DIR`, with a folder that can be written", id)
}

func artifactLine(art api.Artifact, out string) string {
	return fmt.Sprintf("%s  %s, %d bytes", filepath.Join(out, art.Path), art.MediaType, art.Size)
}

// warnRejected names the first output files that were not taken and says how many
// more there are.
func (a *app) warnRejected(id string, rejected []api.Rejected, count int) {
	if count == 0 {
		return
	}
	fmt.Fprintf(a.stderr, "thaw: warning: %d output file(s) were not taken\n", count)
	named := rejected[:min(len(rejected), maxWarned)]
	for _, r := range named {
		fmt.Fprintf(a.stderr, "thaw: not taken: %s  %s\n", r.Path, r.Reason)
	}
	if more := count - len(named); more > 0 {
		fmt.Fprintf(a.stderr, "thaw: not taken: %d more (`thaw jobs show %s` names the first %d)\n", more, id, len(rejected))
	}
}
