package client_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"thaw/api"
	"thaw/client"
)

// A job from its script to its artifacts, with the daemon of $THAW_HOST or of this host.
func Example() {
	if err := runJob(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, api.AsError(err).Text())
	}
}

func runJob(ctx context.Context) error {
	c, err := client.New("")
	if err != nil {
		return err
	}
	defer c.Close()
	script, err := c.AddInput(ctx, strings.NewReader(`print("hello")`))
	if err != nil {
		return err
	}
	job, err := c.Submit(ctx, api.JobRequest{
		Runtime: "python", Script: "main.py",
		Inputs: []api.InputRef{{Name: "main.py", Input: script.Input}},
		Limits: api.Limits{WallSeconds: 20},
	})
	if err != nil {
		return err
	}
	job, err = c.Follow(ctx, job.ID, client.Watcher{
		Stdout: func(b []byte) error { _, err := os.Stdout.Write(b); return err },
	})
	if err != nil {
		return err
	}
	if job.Result.Error != nil { // the job failed, was cancelled or timed out
		return job.Result.Error
	}
	fmt.Println("exit code", job.Result.Exit.Code)
	return c.SaveArtifacts(ctx, job.ID, job.Result.Artifacts, "out")
}
