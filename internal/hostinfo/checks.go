package hostinfo

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
)

// needControllers are the cgroup v2 controllers that bound a machine on the host.
var needControllers = []string{"cpu", "memory", "pids"}

func checkKVM(p kvmProbe) Check {
	c := Check{Name: "kvm", OK: p.err == nil, Required: true}
	if c.OK {
		c.Detail = fmt.Sprintf("/dev/kvm opens, API version %d", p.version)
		return c
	}
	c.Detail = p.err.Error()
	c.Remedy = "use a machine with KVM, or run `make lab` for an emulated host that has it; as a user, join the group that owns /dev/kvm"
	return c
}

func checkArch() Check {
	return Check{
		Name: "architecture", OK: runtime.GOARCH == "amd64", Required: true,
		Detail: runtime.GOARCH, Remedy: "Thaw's machines are x86-64: use an x86-64 host",
	}
}

func checkPrivilege() Check {
	return Check{
		Name: "root", OK: os.Geteuid() == 0, Required: true,
		Detail: fmt.Sprintf("effective uid %d", os.Geteuid()),
		Remedy: "run thawd as root: it makes a user id, namespaces and a cgroup for each machine",
	}
}

func checkCgroup(g Cgroup) Check {
	c := Check{Name: "cgroup", Required: true, Enforces: "host limits of memory, CPU and processes of each machine (cgroup v2)"}
	if g.Mount == "" {
		c.Detail = "cgroup v2 is not mounted"
		c.Remedy = "mount -t cgroup2 none /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1"
		return c
	}
	var missing []string
	for _, name := range needControllers {
		if !g.Has(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		c.Detail = fmt.Sprintf("cgroup v2 at %s lacks controllers: %s", g.Mount, strings.Join(missing, ", "))
		c.Remedy = "boot with cgroup_no_v1=all (or systemd.unified_cgroup_hierarchy=1), so that the controllers are not held by v1; " +
			"for development only, start thawd with --dev"
		return c
	}
	c.OK = true
	c.Detail = fmt.Sprintf("cgroup v2 at %s with %s", g.Mount, strings.Join(g.Controllers, ", "))
	return c
}

func checkUserNS(root fs.FS) Check {
	c := Check{
		Name: "user-namespaces", Required: true,
		Remedy: "use a kernel with CONFIG_USER_NS and set sysctl user.max_user_namespaces above 0",
	}
	if _, err := fs.Stat(root, "proc/self/ns/user"); err != nil {
		c.Detail = "the kernel has no user namespaces"
		return c
	}
	if max := strings.TrimSpace(readFile(root, "proc/sys/user/max_user_namespaces")); max == "0" {
		c.Detail = "user.max_user_namespaces is 0"
		return c
	}
	c.OK, c.Detail = true, "available"
	return c
}

func checkTun(root fs.FS) Check {
	c := Check{Name: "tun", Remedy: "modprobe tun: networked jobs need it, others do not"}
	if _, err := fs.Stat(root, "dev/net/tun"); err != nil {
		c.Detail = "/dev/net/tun is missing"
		return c
	}
	c.OK, c.Detail = true, "/dev/net/tun is there"
	return c
}

func checkKind(k Kind) Check {
	c := Check{Name: "host-kind", OK: k != None}
	switch k {
	case Hardware:
		c.Detail = "hardware: KVM with VMX or SVM; tuned and stock guest kernels run"
	case PVM:
		c.Detail = "pvm: KVM by page tables; only the tuned guest kernel runs natively"
	case Lab:
		c.Detail = "lab: an emulated host; times measured here are not Thaw's"
	default:
		c.Detail = "none: no machine can run here"
		c.Remedy = "`make lab` boots an emulated host; then add --host lab to thaw"
	}
	return c
}
