package boot

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/broker/berth"
	"thaw/rootfs"
	"thaw/vmm/vmmproc"
)

const mib = 1 << 20

// materialise makes all that thaw-vmm is given. The files that it returns are for
// handing over and are the caller's to close, in case of an error too.
func (m *Machine) materialise(ctx context.Context) (spec vmmproc.Spec, handed []*os.File, err error) {
	b := m.booter
	m.berth, err = b.cfg.Yard.Take(berth.Spec{ID: m.spec.ID, VCPUs: m.spec.VCPUs, MemoryMiB: m.spec.MemoryMiB})
	if err != nil {
		return spec, handed, err
	}
	spec = vmmproc.Spec{
		Binary: b.cfg.VMM, VCPUs: m.spec.VCPUs, MemoryBytes: uint64(m.spec.MemoryMiB) * mib, CID: berth.CID, Balloon: true,
		ConsoleLog: ConsoleBytes, UID: m.berth.UID, GID: m.berth.UID, Cgroup: m.berth.Cgroup, VsockListener: m.berth.Listener, Dev: b.cfg.Dev, Connect: m.connect,
	}
	if spec.Cmdline, err = b.cmdline(); err != nil {
		return spec, handed, err
	}
	if m.env, err = b.cfg.Assets.Env(m.spec.Image); err != nil {
		return spec, handed, err
	}
	var image, template, disk *os.File
	for _, step := range []struct {
		to   **os.File
		open func() (*os.File, error)
	}{
		{&spec.Kernel, b.cfg.Assets.Kernel},
		{&spec.Initrd, func() (*os.File, error) { return b.cfg.Assets.Initramfs(ctx) }},
		{&image, func() (*os.File, error) { return b.cfg.Assets.Image(m.spec.Image) }},
		{&template, func() (*os.File, error) { return ScratchTemplate(ctx, m.spec.DiskBytes) }},
		{&disk, func() (*os.File, error) {
			return own(m.spec.Disk, func() (*os.File, error) { return ScratchDisk(m.berth.Dir(), m.spec.DiskBytes) })
		}},
		{&spec.KVM, func() (*os.File, error) { return os.OpenFile("/dev/kvm", os.O_RDWR, 0) }},
		{&spec.Memory, func() (*os.File, error) {
			return own(m.spec.Memory, func() (*os.File, error) { return guestMemory(m.spec.MemoryMiB * mib) })
		}},
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

// own returns another descriptor of a file that the caller has, or a new file.
func own(have *os.File, make func() (*os.File, error)) (*os.File, error) {
	if have == nil {
		return make()
	}
	fd, err := unix.FcntlInt(have.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("boot: duplicate descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), have.Name()), nil
}

// guestMemory makes a memfd whose size nobody can change any more: a VMM that
// shrank it could make whoever maps it fault.
func guestMemory(bytes int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("thaw-guest", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("boot: make guest memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), "guest-memory")
	if err := f.Truncate(bytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("boot: size guest memory: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, fmt.Errorf("boot: seal guest memory: %w", err)
	}
	return f, nil
}

// ScratchTemplate opens the empty file system that lies under writable disks.
func ScratchTemplate(ctx context.Context, bytes int64) (*os.File, error) {
	path, err := rootfs.Scratch(ctx, bytes)
	if err != nil {
		return nil, fmt.Errorf("boot: scratch disk: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("boot: scratch disk: %w", err)
	}
	return f, nil
}

// ScratchDisk makes the layer that a machine writes to: a sparse file without a
// name, gone with its last descriptor even if the host's power fails.
func ScratchDisk(dir string, bytes int64) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("boot: make writable disk: %w", err)
	}
	f := os.NewFile(uintptr(fd), "scratch")
	if err := f.Truncate(bytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("boot: size writable disk: %w", err)
	}
	return f, nil
}
