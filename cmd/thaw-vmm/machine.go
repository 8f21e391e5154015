package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"thaw/virtio/balloon"
	"thaw/vmm"
	"thaw/vmm/vmmproc/vmmchild"
	"thaw/vmm/vmmproto"
)

// machine makes package vmm's machine speak the language of the control socket.
type machine struct{ *vmm.Machine }

func newMachine(r vmmchild.Request) (vmmchild.Machine, error) {
	cfg, err := config(r)
	if err != nil {
		return nil, err
	}
	m, err := vmm.New(cfg)
	if err != nil {
		return nil, err
	}
	return machine{m}, nil
}

func config(r vmmchild.Request) (vmm.Config, error) {
	cfg := vmm.Config{
		Shell: r.Start.Shell, VCPUs: r.Start.VCPUs, MemoryBytes: r.Start.MemoryBytes, Cmdline: r.Start.Cmdline,
		CPUID: r.Start.CPUID, Balloon: r.Start.Balloon, DirtyRing: r.Start.DirtyRing, ConsoleLog: r.Start.ConsoleLog,
		KVM: r.Files["kvm"], Memory: r.Files["memory"], Kernel: r.Files["kernel"], Initrd: r.Files["initrd"], Handler: r.Files["handler"], Fill: r.Fill,
	}
	for _, d := range r.Start.Disks {
		disk := vmm.Disk{ID: d.ID, ReadOnly: d.ReadOnly}
		for n := range d.Layers {
			disk.Layers = append(disk.Layers, r.Files[vmmproto.DiskFile(d.ID, n)])
		}
		cfg.Disks = append(cfg.Disks, disk)
	}
	if r.Start.Vsock != nil {
		listener, err := unixListener(r.Files["vsock"])
		if err != nil {
			return vmm.Config{}, err
		}
		cfg.Vsock = &vmm.Vsock{CID: r.Start.Vsock.CID, Listener: listener, Connect: r.Connect}
	}
	if r.Start.Net != nil {
		cfg.Net = &vmm.Net{Tap: r.Files["tap"], MAC: r.Start.Net.MAC}
	}
	return cfg, nil
}

// unixListener wraps the passed socket, which package net duplicates.
func unixListener(f *os.File) (*net.UnixListener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("thaw-vmm: vsock listener: %w", err)
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("thaw-vmm: vsock listener is a %T", l)
	}
	return listener, nil
}

func (m machine) Run(ctx context.Context) (vmmproto.Exited, error) {
	exit := m.Machine.Run(ctx)
	return vmmproto.Exited{Reason: reason(exit.Reason), Detail: exit.Detail, Console: exit.Console}, nil
}

func reason(r vmm.Reason) vmmproto.Reason {
	switch r {
	case vmm.Poweroff:
		return vmmproto.Poweroff
	case vmm.Reset:
		return vmmproto.Reset
	case vmm.Panic:
		return vmmproto.Panic
	case vmm.TripleFault:
		return vmmproto.TripleFault
	case vmm.Stopped:
		return vmmproto.Stopped
	default:
		return vmmproto.Internal
	}
}

func (m machine) Pause() error  { m.Machine.Pause(); return nil }
func (m machine) Resume() error { m.Machine.Resume(); return nil }

// Stats are the machine's counters and those of the process.
func (m machine) Stats() map[string]uint64 {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	values := m.Counters()
	values["vmm.heap_bytes"] = mem.HeapAlloc
	values["vmm.sys_bytes"] = mem.Sys
	values["vmm.goroutines"] = uint64(runtime.NumGoroutine())
	values["vmm.collections"] = uint64(mem.NumGC)
	return values
}

// MemoryStats are the numbers that the guest gave, by name.
func (m machine) MemoryStats(ctx context.Context) (map[string]uint64, error) {
	s, err := m.Machine.MemoryStats(ctx)
	if err != nil {
		return nil, err
	}
	values := map[string]uint64{}
	for tag := range balloon.Tags {
		if v, ok := s.Value(tag); ok {
			values[tag.String()] = v
		}
	}
	return values, nil
}

func (m machine) Phases() []vmmproto.Phase { return phases("machine", m.Machine.Phases()) }
