// Package launch gives the broker the machines that jobs run in: booted, and with the
// guest protocol's client for their agent.
package launch

import (
	"context"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/boot"
	"thaw/vmm/vmmproc"
)

// Config is what all machines of a daemon share.
type Config = boot.Config

// Launcher implements broker.Launcher.
type Launcher struct {
	cfg    Config
	booter *boot.Booter
}

// New makes a launcher.
func New(cfg Config) *Launcher { return &Launcher{cfg: cfg, booter: boot.New(cfg)} }

// Check implements broker.Launcher.
func (l *Launcher) Check(image string) error {
	kernel, err := l.cfg.Assets.Kernel()
	if err != nil {
		return err
	}
	kernel.Close()
	f, err := l.cfg.Assets.Image(image)
	if err != nil {
		return err
	}
	return f.Close()
}

// Assets implements broker.Launcher.
func (l *Launcher) Assets(images []string) (api.Asset, map[string]api.Asset) {
	return l.cfg.Assets.Describe(images)
}

// Launch implements broker.Launcher.
func (l *Launcher) Launch(ctx context.Context, spec broker.LaunchSpec) (broker.Machine, error) {
	m, err := l.booter.Boot(ctx, boot.Spec{
		ID: spec.ID, Image: spec.Image, VCPUs: spec.VCPUs, MemoryMiB: spec.MemoryMiB, DiskBytes: spec.DiskBytes,
	})
	if err != nil {
		return nil, err
	}
	return machine{m}, nil
}

// machine implements broker.Machine.
type machine struct {
	*boot.Machine
}

// Agent implements broker.Machine.
func (m machine) Agent() broker.Agent { return agent{m.Client(), m.Env()} }

// Exit implements broker.Machine.
func (m machine) Exit() broker.MachineExit { return machineExit(m.Machine.Exit()) }

// machineExit sorts the ends of a process into those that the broker tells apart.
func machineExit(x vmmproc.Exit) broker.MachineExit {
	m := broker.MachineExit{Detail: boot.Detail(x), Reason: broker.ExitFailed}
	switch x.Reason {
	case vmmproc.Poweroff, vmmproc.Reset, vmmproc.Stopped:
		m.Reason = broker.ExitPoweroff
	case vmmproc.GuestPanic, vmmproc.TripleFault:
		m.Reason = broker.ExitPanic
	case vmmproc.Killed, vmmproc.Signalled:
		m.Reason = broker.ExitKilled
	}
	if len(x.Console) > 0 {
		m.Console = boot.LastLines(x.Console)
	}
	return m
}
