package broker

import (
	"thaw/api"
	"thaw/internal/hostinfo"
)

// alwaysEnforced is what every host enforces on every job.
var alwaysEnforced = []string{
	"a microVM of its own for each job, destroyed at its end",
	"a user id, user, mount, pid, network, ipc and uts namespaces of its own for each thaw-vmm, in an empty root, without capabilities, behind a seccomp list",
	"no network",
	"wall clock, memory, CPU, process, disk and output limits (guest)",
	"admission against memory, disk, CPU and machine reserves",
}

// notEnforced is what this host lacks; a daemon that is not in development mode
// does not start with such a lack.
func (b *Broker) notEnforced() []string {
	out := []string{}
	for _, c := range b.cfg.Host.Missing() {
		what := c.Enforces
		if what == "" {
			what = c.Name
		}
		out = append(out, what+": "+c.Detail)
	}
	return out
}

// Info describes the daemon.
func (b *Broker) Info() api.Info {
	var images []string
	for _, p := range profiles {
		images = append(images, p.image)
	}
	kernel, byName := b.cfg.Launcher.Assets(images)
	i := api.Info{
		Version: b.cfg.Version, Host: WireHost(b.cfg.Host), Dev: b.cfg.Dev, Enforced: append([]string{}, alwaysEnforced...),
		NotEnforced: b.notEnforced(), Kernel: kernel, Networks: networks,
		Limits: api.LimitInfo{Max: b.most, InputBytes: b.cfg.InputBytes},
		Jobs:   api.JobCounts{Queued: b.pool.Queued(), Running: b.pool.Running()},
	}
	i.Sandboxes = b.openSandboxes()
	// A sandbox that comes or goes is counted in one before the other.
	i.Jobs.Running = max(0, i.Jobs.Running-i.Sandboxes)
	if f := b.cfg.Fleet; f != nil {
		i.Templates = &api.TemplateInfo{DiskBytes: f.DiskBytes(), Shells: f.Shells(), Trackers: f.Trackers()}
		for _, c := range f.Classes() {
			i.Templates.Classes = append(i.Templates.Classes, api.MachineClass{MemoryMiB: c.MemoryMiB, VCPUs: c.VCPUs})
		}
	}
	for _, c := range b.cfg.Host.Checks {
		if c.OK && c.Enforces != "" {
			i.Enforced = append(i.Enforced, c.Enforces)
		}
	}
	for _, p := range profiles {
		i.Runtimes = append(i.Runtimes, api.Runtime{Name: p.name, Suffixes: p.suffixes(), Image: byName[p.image], Defaults: p.defaults})
	}
	return i
}

// WireHost is a host's findings as the interface tells them.
func WireHost(h hostinfo.Info) api.Host {
	w := api.Host{Kind: string(h.Kind), CPUModel: h.CPUModel, Kernel: h.Kernel, Fingerprint: h.Fingerprint()}
	for _, c := range h.Checks {
		wire := api.Check{Name: c.Name, OK: c.OK, Detail: c.Detail, Required: c.Required}
		if !c.OK {
			wire.Remedy = c.Remedy
		}
		w.Checks = append(w.Checks, wire)
	}
	return w
}
