// Package hostinfo finds out what the machine that Thaw runs on can do: which
// kind of KVM it has, its CPU, its cgroups, and what of Thaw's needs is missing.
//
// Nothing here changes the host. Every finding is a Check with the remedy for
// the case that it does not hold; the daemon refuses to start on a failed
// required one, and `thaw doctor` prints them all.
package hostinfo

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"strings"
)

// Kind is the kind of host, which decides what guest kernels run on it.
type Kind string

const (
	// Hardware has KVM on VMX or SVM.
	Hardware Kind = "hardware"
	// PVM has KVM in software, by page tables: only kernels built for it run natively.
	PVM Kind = "pvm"
	// Lab is Thaw's own emulated host.
	Lab Kind = "lab"
	// None has no usable KVM.
	None Kind = "none"
)

// Check is one finding.
type Check struct {
	Name     string // stable, lower case
	OK       bool
	Detail   string // what was found
	Remedy   string // what to do when not OK
	Required bool   // without it the daemon refuses to start, unless told --dev
	// Enforces is what a missing one leaves unenforced in development mode. A
	// required check without it must hold in development mode too.
	Enforces string
}

// Cgroup says where cgroup v2 is and what it can control.
type Cgroup struct {
	Mount       string   // "" when cgroup v2 is not mounted
	Controllers []string // available at the mount's root
}

// Has reports whether a controller is available.
func (c Cgroup) Has(name string) bool {
	for _, have := range c.Controllers {
		if have == name {
			return true
		}
	}
	return false
}

// Info is all findings about a host.
type Info struct {
	Kind     Kind
	CPUModel string
	Kernel   string // release, as uname -r
	Cgroup   Cgroup
	Checks   []Check
}

// Detect looks at the running host.
func Detect() Info {
	return detect(os.DirFS("/"), probeKVM())
}

// detect is Detect over a file tree and the outcome of opening /dev/kvm, so that
// tests can show it other hosts.
func detect(root fs.FS, kvm kvmProbe) Info {
	cpu := parseCPUInfo(readFile(root, "proc/cpuinfo"))
	info := Info{
		CPUModel: cpu.model,
		Kernel:   strings.TrimSpace(readFile(root, "proc/sys/kernel/osrelease")),
		Cgroup:   findCgroup2(root),
	}
	switch {
	case kvm.err != nil:
		info.Kind = None
	case hasWord(readFile(root, "proc/cmdline"), "thaw.lab=1"):
		info.Kind = Lab
	case cpu.virt:
		info.Kind = Hardware
	default:
		info.Kind = PVM
	}
	info.Checks = []Check{
		checkKVM(kvm), checkArch(), checkPrivilege(), checkCgroup(info.Cgroup),
		checkUserNS(root), checkTun(root), checkKind(info.Kind),
	}
	return info
}

// Missing returns the required checks that failed.
func (i Info) Missing() []Check {
	var out []Check
	for _, c := range i.Checks {
		if c.Required && !c.OK {
			out = append(out, c)
		}
	}
	return out
}

// Fingerprint identifies what a snapshot made on this host depends on: it changes
// when CPU model, host kind or host kernel does.
func (i Info) Fingerprint() string {
	sum := sha256.Sum256([]byte(string(i.Kind) + "\x00" + i.CPUModel + "\x00" + i.Kernel))
	return hex.EncodeToString(sum[:16])
}

func readFile(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return string(b)
}

func hasWord(s, word string) bool {
	for _, w := range strings.Fields(s) {
		if w == word {
			return true
		}
	}
	return false
}
