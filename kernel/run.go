package kernel

import (
	"context"
	"fmt"

	"thaw/internal/hostcmd"
)

// run runs c in a clean environment and returns what it prints.
func run(ctx context.Context, c hostcmd.Command) (string, error) {
	c.Clean = true
	out, err := c.Run(ctx)
	if err != nil {
		err = fmt.Errorf("kernel: %w", err)
	}
	return out, err
}

// output runs argv in a clean environment and returns what it prints.
func output(ctx context.Context, argv ...string) (string, error) {
	return run(ctx, hostcmd.Command{Argv: argv})
}
