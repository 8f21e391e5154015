package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"thaw/lab/labproto"
)

// Descriptors that QEMU and virtiofsd inherit, by number.
const (
	channelFD = 3 // QEMU: its end of the channel's socketpair
	listenFD  = 3 // virtiofsd: its listening socket
)

const rootTag = "hostroot"

// modules that a host of microVMs has loaded. Others come on demand: labinit is
// the kernel's modprobe.
var modules = []string{"kvm-amd", "tun", "veth", "nf_tables", "vhost_vsock", "vsock_loopback", "loop", "erofs"}

// share is one virtiofs share: a virtiofsd process and a device of the lab.
type share struct {
	tag      string
	path     string
	socket   string
	writable bool
}

// shares lists the shares of a lab: the host's whole tree, read only, and the
// folders that it may write.
func shares(o Options) []share {
	list := []share{{tag: rootTag, path: "/", socket: filepath.Join(o.StateDir, "root.fs.sock")}}
	for i, w := range o.Writable {
		list = append(list, share{
			tag:      fmt.Sprintf("writable%d", i),
			path:     filepath.Clean(w),
			socket:   filepath.Join(o.StateDir, fmt.Sprintf("%d.fs.sock", i)),
			writable: true,
		})
	}
	return list
}

// argv is the command line of the share's virtiofsd, which may have openFiles
// descriptors.
func (s share) argv(t *Tools, openFiles uint64) []string {
	args := []string{
		fmt.Sprintf("--fd=%d", listenFD),
		"--shared-dir=" + s.path,
		// The tree is the user's own; a sandbox would need the host's /proc
		// and user namespaces, which not every host offers.
		"--sandbox=none",
		// Changes of the host's files, such as a new build, are seen in a second.
		"--cache=auto",
		// The host's mounts are to look like plain folders: an overlay does not
		// cross mounts of its lower layer.
		"--no-announce-submounts",
		"--log-level=warn",
		fmt.Sprintf("--rlimit-nofile=%d", openFiles),
	}
	if os.Geteuid() == 0 {
		// Inodes that the lab knows are held by handle, not by a descriptor each:
		// a build in the lab knows tens of thousands.
		args = append(args, "--inode-file-handles=prefer", "--modcaps=+dac_read_search")
	}
	if !s.writable {
		args = append(args, "--readonly")
	}
	return t.command("", virtiofsdPath, args...)
}

// cmdline is the lab kernel's command line.
func cmdline(o Options) string {
	return strings.Join([]string{
		"rootfstype=virtiofs", "root=" + rootTag, "ro",
		"init=" + filepath.Join(o.StateDir, initFile),
		"console=ttyS0", "loglevel=5",
		// Any fault of the kernel ends QEMU (it runs with -no-reboot), so that
		// the supervisor sees it at once.
		"panic=-1", "oops=panic", "softlockup_panic=0",
		// The emulated CPU has no speculation to mitigate; page-table isolation
		// alone would cost a flush of its translations at each system call.
		"mitigations=off",
		// Emulated CPUs stop for milliseconds; a watchdog takes that for a fault.
		"nowatchdog", "clocksource=tsc", "tsc=reliable",
		"thaw.lab=1",
		labproto.ConfigParam + "=" + filepath.Join(o.StateDir, configFile),
	}, " ")
}

// qemuArgv is QEMU's command line.
func qemuArgv(t *Tools, o Options) []string {
	args := []string{
		"-name", "thaw-lab",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-L", filepath.Join(t.Root, "usr/share/qemu"),
		"-L", filepath.Join(t.Root, "usr/share/seabios"),
		"-machine", "q35,memory-backend=mem",
		"-accel", "tcg,thread=multi",
		"-cpu", "max,+svm,+npt",
		"-smp", fmt.Sprint(o.CPUs),
		"-m", fmt.Sprintf("%dM", o.MemoryMiB),
		// vhost-user needs memory that the other process can map.
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dM,share=on", o.MemoryMiB),
		"-kernel", t.vmlinuz(),
		"-append", cmdline(o),
		"-chardev", "file,id=console,path=" + filepath.Join(o.StateDir, consoleFile),
		"-serial", "chardev:console",
		"-chardev", fmt.Sprintf("socket,id=channel,fd=%d", channelFD),
		"-device", "virtio-serial-pci",
		"-device", "virtserialport,chardev=channel,name=" + labproto.PortName,
	}
	for _, s := range shares(o) {
		args = append(args,
			"-chardev", fmt.Sprintf("socket,id=%s,path=%s", s.tag, s.socket),
			"-device", fmt.Sprintf("vhost-user-fs-pci,chardev=%s,tag=%s", s.tag, s.tag))
	}
	return t.command("", qemuPath, args...)
}
