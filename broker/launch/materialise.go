package launch

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/broker"
	"thaw/broker/berth"
	"thaw/rootfs"
	"thaw/vmm/vmmproc"
)

const mib = 1 << 20

// materialise makes all that thaw-vmm is given. The files that it returns are for
// handing over and are the caller's to close, in case of an error too.
func (m *machine) materialise(ctx context.Context) (spec vmmproc.Spec, handed []*os.File, err error) {
	l := m.launcher
	m.berth, err = l.cfg.Yard.Take(berth.Spec{ID: m.spec.ID, VCPUs: m.spec.VCPUs, MemoryMiB: m.spec.MemoryMiB + broker.VMMMiB})
	if err != nil {
		return spec, handed, err
	}
	spec = vmmproc.Spec{
		Binary: l.cfg.VMM, VCPUs: m.spec.VCPUs, MemoryBytes: uint64(m.spec.MemoryMiB) * mib, CID: berth.CID, Balloon: true,
		ConsoleLog: consoleBytes, UID: m.berth.UID, GID: m.berth.UID, Cgroup: m.berth.Cgroup, VsockListener: m.berth.Listener, Dev: l.cfg.Dev, Connect: m.connect,
	}
	if spec.Cmdline, err = l.cmdline(); err != nil {
		return spec, handed, err
	}
	if m.env, err = l.cfg.Assets.Env(m.spec.Image); err != nil {
		return spec, handed, err
	}
	var image, template, disk *os.File
	for _, step := range []struct {
		to   **os.File
		open func() (*os.File, error)
	}{
		{&spec.Kernel, l.cfg.Assets.Kernel},
		{&spec.Initrd, func() (*os.File, error) { return l.cfg.Assets.Initramfs(ctx) }},
		{&image, func() (*os.File, error) { return l.cfg.Assets.Image(m.spec.Image) }},
		{&template, func() (*os.File, error) { return scratchTemplate(ctx, m.spec.DiskBytes) }},
		{&disk, func() (*os.File, error) { return scratchDisk(m.berth.Dir, m.spec.DiskBytes) }},
		{&spec.KVM, func() (*os.File, error) { return os.OpenFile("/dev/kvm", os.O_RDWR, 0) }},
		{&spec.Memory, func() (*os.File, error) { return guestMemory(m.spec.MemoryMiB * mib) }},
	} {
		f, err := step.open()
		if err != nil {
			return spec, handed, err
		}
		handed = append(handed, f)
		*step.to = f
	}
	spec.Disks = []vmmproc.Disk{
		{ID: "vda", Layers: []*os.File{image}, ReadOnly: true},
		{ID: "vdb", Layers: []*os.File{template, disk}},
	}
	return spec, handed, nil
}

// guestMemory makes a memfd whose size nobody can change any more: a VMM that
// shrank it could make whoever maps it fault.
func guestMemory(bytes int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("thaw-guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("launch: make guest memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "guest-memory")
	if err := f.Truncate(bytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("launch: size guest memory: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, fmt.Errorf("launch: seal guest memory: %w", err)
	}
	return f, nil
}

// scratchTemplate opens the empty file system that lies under writable disks.
func scratchTemplate(ctx context.Context, bytes int64) (*os.File, error) {
	path, err := rootfs.Scratch(ctx, bytes)
	if err != nil {
		return nil, fmt.Errorf("launch: scratch disk: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("launch: scratch disk: %w", err)
	}
	return f, nil
}

// scratchDisk makes the layer that a machine writes to: a sparse file without a
// name, gone with its last descriptor even if the host's power fails.
func scratchDisk(dir string, bytes int64) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("launch: make writable disk: %w", err)
	}
	f := os.NewFile(uintptr(fd), "scratch")
	if err := f.Truncate(bytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("launch: size writable disk: %w", err)
	}
	return f, nil
}
