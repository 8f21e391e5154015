package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"

	"thaw/bench/report"
	"thaw/bench/samples"
	"thaw/internal/hostinfo"
	"thaw/kernel"
	"thaw/rootfs"
)

// open makes what is needed to measure; kind begins the name of the file of samples. It
// warns of a busy host.
func open(ctx context.Context, cfg Config, kind string, warning func(string)) (_ *rig, host string, err error) {
	info := hostinfo.Detect()
	if info.Kind == hostinfo.None {
		return nil, "", errors.New("checkpoint: no machine can run on this host: `thaw doctor` says what is missing")
	}
	host = fmt.Sprintf("%s, %s, Linux %s", info.Kind, info.CPUModel, info.Kernel)
	r := &rig{cfg: cfg, n: cfg.N, templates: map[string]bool{}}
	if r.n == 0 {
		r.n = pick(cfg.Quick, 30, 200)
	}
	busy := report.Busy()
	for _, w := range busy {
		warning(w)
	}
	if r.kernel = cfg.Kernel; r.kernel == "" {
		k, err := kernel.Tuned(ctx, cfg.Progress)
		if err != nil {
			return nil, "", err
		}
		r.kernel = k.Path
	}
	for _, image := range []string{imagePython, imageNode} {
		if _, err := rootfs.Build(ctx, image, cfg.Progress); err != nil {
			return nil, "", err
		}
	}
	if r.dir, err = os.MkdirTemp("", "thaw-bench-"); err != nil {
		return nil, "", fmt.Errorf("checkpoint: make temporary folder: %w", err)
	}
	if cfg.RawDir != "" {
		if r.raw, err = samples.Create(cfg.RawDir, kind); err == nil {
			err = errors.Join(r.raw.Add("host", host), r.raw.Add("busy", busy))
		}
	}
	if err == nil {
		err = r.start(ctx, shells{generic: genericShells, rehearsed: rehearsedShells})
	}
	if err != nil {
		return nil, "", errors.Join(err, r.end())
	}
	return r, host, nil
}

// end gives everything up.
func (r *rig) end() error { return errors.Join(r.close(), r.raw.Close(), os.RemoveAll(r.dir)) }
