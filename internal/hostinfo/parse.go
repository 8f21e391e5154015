package hostinfo

import (
	"io/fs"
	"path"
	"strings"
)

type cpuInfo struct {
	model string
	virt  bool // vmx or svm among the flags
}

// parseCPUInfo reads the first processor of /proc/cpuinfo.
func parseCPUInfo(text string) cpuInfo {
	var c cpuInfo
	for line := range strings.SplitSeq(text, "\n") {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			if c.model != "" {
				break // end of the first processor
			}
			continue
		}
		switch strings.TrimSpace(key) {
		case "model name":
			c.model = strings.TrimSpace(value)
		case "flags":
			c.virt = hasWord(value, "vmx") || hasWord(value, "svm")
		}
	}
	return c
}

// findCgroup2 finds the cgroup v2 mount: the root of a unified hierarchy, or the
// second mount of a hybrid one, whose controllers may all be held by v1.
func findCgroup2(root fs.FS) Cgroup {
	for line := range strings.SplitSeq(readFile(root, "proc/self/mounts"), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		g := Cgroup{Mount: f[1]}
		g.Controllers = strings.Fields(readFile(root, path.Join(f[1], "cgroup.controllers")[1:]))
		return g
	}
	return Cgroup{}
}
