package hostinfo

import (
	"errors"
	"testing"
	"testing/fstest"
)

func tree(files map[string]string) fstest.MapFS {
	m := fstest.MapFS{}
	for name, text := range files {
		m[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return m
}

func TestKind(t *testing.T) {
	const vmx = "processor\t: 0\nmodel name\t: Fast CPU\nflags\t\t: fpu vmx sse\n\nprocessor\t: 1\nmodel name : Other\n"
	const plain = "processor\t: 0\nmodel name\t: Fast CPU\nflags\t\t: fpu sse xvmxx\n"
	for _, tc := range []struct {
		name, cpuinfo, cmdline string
		err                    error
		want                   Kind
	}{
		{"vmx", vmx, "quiet", nil, Hardware},
		{"neither flag", plain, "quiet", nil, PVM},
		{"lab", vmx, "quiet thaw.lab=1", nil, Lab},
		{"no kvm", vmx, "quiet thaw.lab=1", errors.New("no such file"), None},
		{"lab is a word of its own", plain, "thaw.lab=10", nil, PVM},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := detect(tree(map[string]string{"proc/cpuinfo": tc.cpuinfo, "proc/cmdline": tc.cmdline}), kvmProbe{version: 12, err: tc.err})
			if got.Kind != tc.want || got.CPUModel != "Fast CPU" {
				t.Errorf("got %q on %q, want %q", got.Kind, got.CPUModel, tc.want)
			}
		})
	}
}

func TestCgroup(t *testing.T) {
	const hybrid = "cgroup /sys/fs/cgroup/memory cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
	got := detect(tree(map[string]string{"proc/self/mounts": hybrid, "sys/fs/cgroup/unified/cgroup.controllers": "\n"}), kvmProbe{})
	if got.Cgroup.Mount != "/sys/fs/cgroup/unified" || len(got.Cgroup.Controllers) != 0 {
		t.Fatalf("cgroup %+v", got.Cgroup)
	}
	if !missing(got, "cgroup") {
		t.Error("a host without controllers passes the cgroup check")
	}
	const unified = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
	got = detect(tree(map[string]string{"proc/self/mounts": unified, "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n"}), kvmProbe{})
	if !got.Cgroup.Has("memory") || missing(got, "cgroup") {
		t.Errorf("cgroup %+v, missing %+v", got.Cgroup, got.Missing())
	}
	if got = detect(tree(nil), kvmProbe{}); got.Cgroup.Mount != "" || !missing(got, "cgroup") {
		t.Error("a host without cgroup v2 passes")
	}
}

func missing(i Info, name string) bool {
	for _, c := range i.Missing() {
		if c.Name == name {
			return true
		}
	}
	return false
}

func TestEveryFailedCheckHasARemedy(t *testing.T) {
	for _, c := range detect(tree(nil), kvmProbe{err: errors.New("gone")}).Checks {
		if !c.OK && c.Remedy == "" {
			t.Errorf("check %s fails without a remedy", c.Name)
		}
	}
}

func TestFingerprint(t *testing.T) {
	a := Info{Kind: PVM, CPUModel: "A", Kernel: "6.12"}
	b := a
	b.Kernel = "6.13"
	same := a
	if a.Fingerprint() == b.Fingerprint() || a.Fingerprint() != same.Fingerprint() {
		t.Error("fingerprint does not follow the kernel")
	}
}

func TestDetectHere(t *testing.T) {
	if i := Detect(); i.Kernel == "" || len(i.Checks) == 0 {
		t.Errorf("nothing found: %+v", i)
	}
}
