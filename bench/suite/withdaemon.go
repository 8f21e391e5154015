package suite

import (
	"context"

	"thaw/bench/daemon"
)

// withDaemon measures with a daemon that has the python image and boots every
// machine, and ends it.
func (e *env) withDaemon(ctx context.Context, measure func(context.Context, *daemon.Daemon) ([]Metric, error)) (_ []Metric, err error) {
	if _, err := e.image(ctx, "python"); err != nil {
		return nil, err
	}
	d, err := daemon.Start(ctx, daemon.Config{Bin: e.cfg.Bin, Dir: e.dir, Kernel: e.kernel, Args: []string{"--templates=off"}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if serr := d.Stop(); err == nil {
			err = serr
		}
	}()
	return measure(ctx, d)
}
