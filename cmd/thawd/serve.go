package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/admission"
	"thaw/broker/assets"
	"thaw/broker/berth"
	"thaw/broker/httpapi"
	"thaw/broker/journal"
	"thaw/broker/launch"
	"thaw/internal/hostinfo"
	"thaw/internal/version"
	"thaw/snapshot/policy"
)

// Bounds of an orderly end: jobs get their grace and their machines are
// destroyed, then streams that still send their results.
const (
	jobsEnd    = time.Minute
	streamsEnd = 5 * time.Second
)

// How long a guest may take to be ready: a hundred times what it takes on an idle
// host, and the same for the lab, whose CPU is emulated.
const (
	readyTimeout    = 30 * time.Second
	labReadyTimeout = 5 * time.Minute
	// maxOvercommit is the most that machines are promised more than there is.
	maxOvercommit = 64
)

// serve runs the daemon until ctx ends.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	if o.tenantMachines < 0 {
		return api.Errorf(api.CodeBadRequest, "--tenant-machines cannot be %d", o.tenantMachines).WithRemedy("give a positive number, or leave it out")
	}
	if min(o.genericShells, o.boundShells, o.rehearsedShells) < 0 {
		return api.Errorf(api.CodeBadRequest, "there cannot be fewer than no shells").WithRemedy("give 0 or more to --generic-shells, --bound-shells and --rehearsed-shells")
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	host := hostinfo.Detect()
	if err := fit(host, o.dev); err != nil {
		return err
	}
	if o.readyTimeout == 0 {
		o.readyTimeout = readyTimeout
		if host.Kind == hostinfo.Lab {
			o.readyTimeout = labReadyTimeout
		}
	}
	set, err := checkedAssets(o, host)
	if err != nil {
		return err
	}
	listener, err := listen(o)
	if err != nil {
		return err
	}
	defer listener.Close()
	machines, err := openJournal(filepath.Join(o.stateDir, "machines"), log)
	if err != nil {
		return err
	}
	defer machines.Close()
	capacity, err := capacity(o)
	if err != nil {
		return err
	}
	yard, err := berth.NewYard(machines, host.Cgroup)
	if err != nil {
		return err
	}
	defer yard.Close()
	config := launch.Config{
		VMM: filepath.Join(o.bin, "thaw-vmm"), Assets: set, Yard: yard, Host: host, Dev: o.dev, ReadyTimeout: o.readyTimeout, Log: log,
	}
	warm, err := openTemplates(o, config)
	if err != nil {
		return err
	}
	records, err := os.OpenFile(filepath.Join(o.stateDir, "checkpoints.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("thawd: open records of checkpoints: %w", err), warm.close())
	}
	defer records.Close()
	b, err := broker.New(broker.Config{
		Records:  policy.NewWriter(records),
		StateDir: o.stateDir, Version: version.Get().Short(), Dev: o.dev, Host: host, Log: log, TenantMachines: o.tenantMachines,
		Launcher: launch.New(config), Fleet: warm.forBroker(), Capacity: capacity,
	})
	if err != nil {
		return errors.Join(err, warm.close())
	}
	warm.start(ctx)
	server := httpapi.NewServer(b, log)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	announce(log, o, b.Info())
	select {
	case err = <-failed:
		err = fmt.Errorf("thawd: serve: %w", err)
	case <-ctx.Done():
	}
	end()
	return errors.Join(err, stop(log, b, server), warm.close())
}

// capacity is what machines are promised; zero is what the host has. Preconditions:
// the state directory exists.
func capacity(o options) (admission.Need, error) {
	switch {
	case o.overcommit == 1:
		return admission.Need{}, nil
	case !(o.overcommit > 1 && o.overcommit <= maxOvercommit):
		return admission.Need{}, api.Errorf(api.CodeBadRequest, "--overcommit cannot be %v", o.overcommit).WithRemedy("give a number from 1 to %d", maxOvercommit)
	}
	have, err := broker.HostCapacity(o.stateDir)
	if err != nil {
		return admission.Need{}, err
	}
	times := func(n int64) int64 { return int64(float64(n) * o.overcommit) }
	return admission.Need{
		MemoryMiB: times(have.MemoryMiB), DiskBytes: times(have.DiskBytes), CPUMilli: times(have.CPUMilli), Machines: times(have.Machines),
	}, nil
}

// stop ends jobs first, so that the streams which follow them end by themselves.
func stop(log *slog.Logger, b *broker.Broker, server *http.Server) error {
	log.Info("stopping")
	jobs, cancel := context.WithTimeout(context.Background(), jobsEnd)
	defer cancel()
	err := b.Shutdown(jobs)
	streams, cancel := context.WithTimeout(context.Background(), streamsEnd)
	defer cancel()
	if serr := server.Shutdown(streams); serr != nil {
		server.Close()
		log.Warn("some callers were cut off", "error", serr)
	}
	return err
}

// fit refuses a host that lacks something required. Development mode does without
// what is only a second line of defence; never without a machine.
func fit(host hostinfo.Info, dev bool) error {
	var lacks, remedies []string
	for _, c := range host.Missing() {
		if dev && c.Enforces != "" {
			continue
		}
		lacks = append(lacks, c.Name+": "+c.Detail)
		remedies = append(remedies, c.Name+": "+c.Remedy)
	}
	if len(lacks) == 0 {
		return nil
	}
	return api.Errorf(api.CodeHostUnfit, "this host lacks what thawd requires").
		WithCause(errors.New(strings.Join(lacks, "\n"))).WithRemedy("%s", strings.Join(remedies, "\n"))
}

// checkedAssets finds the guest kernel and makes sure that it runs on this kind of
// host. Images may be made later: a job that wants a missing one is refused.
func checkedAssets(o options, host hostinfo.Info) (*assets.Set, error) {
	set, err := assets.New(assets.Config{Kernel: o.kernel, Images: o.images, Init: filepath.Join(o.bin, "thaw-init")})
	if err != nil {
		return nil, err
	}
	kernel, err := set.Kernel()
	if err != nil {
		return nil, err
	}
	defer kernel.Close()
	if host.Kind != hostinfo.PVM {
		return set, nil
	}
	native, err := assets.RunsOnPVM(kernel)
	if err != nil {
		return nil, err
	}
	if !native {
		return nil, api.Errorf(api.CodeHostUnfit, "guest kernel %s cannot run on this host", kernel.Name()).
			WithCause(errors.New("the host's KVM works by page tables (pvm); it runs only kernels built for it")).
			WithRemedy("use the tuned kernel (--kernel tuned), or run this one in the lab (`make lab`)")
	}
	return set, nil
}

func listen(o options) (*net.UnixListener, error) {
	gid := -1
	if o.group != "" {
		g, err := user.LookupGroup(o.group)
		if err != nil {
			if g, err = user.LookupGroupId(o.group); err != nil {
				return nil, api.Errorf(api.CodeBadRequest, "there is no group %q", o.group).WithCause(err)
			}
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return nil, fmt.Errorf("thawd: group id: %w", err)
		}
	}
	l, err := httpapi.Listen(o.socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(o.socket, -1, gid); err != nil {
		l.Close()
		return nil, fmt.Errorf("thawd: set socket group: %w", err)
	}
	return l, nil
}

// openJournal locks the machines' directory and cleans up what a daemon that was
// killed left there.
func openJournal(dir string, log *slog.Logger) (*journal.Journal, error) {
	j, err := journal.Open(dir)
	if errors.Is(err, journal.ErrInUse) {
		return nil, api.Errorf(api.CodeStateInUse, "another daemon uses %s", dir).WithRemedy("stop it, or choose another with --state-dir")
	}
	if err != nil {
		return nil, err
	}
	left, err := j.Reclaim()
	if err != nil {
		j.Close()
		return nil, err
	}
	for _, l := range left {
		if l.Err != nil {
			log.Error("leftover machine could not be reclaimed", "machine", l.ID, "error", l.Err)
			continue
		}
		log.Info("reclaimed leftover machine", "machine", l.ID, "killed", l.Killed)
	}
	return j, nil
}

func announce(log *slog.Logger, o options, info api.Info) {
	log.Info("ready", "socket", o.socket, "version", info.Version, "host", info.Host.Kind, "kernel", info.Kernel.Path)
	for _, what := range info.NotEnforced {
		log.Warn("not enforced (development mode)", "what", what)
	}
	for _, r := range info.Runtimes {
		if !r.Image.OK {
			log.Warn("image cannot be used", "image", r.Image.Name, "error", r.Image.Error)
		}
	}
}
