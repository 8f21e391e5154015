package lab

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNormalise(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    Options
		want string // part of the error
	}{
		"zero":                 {Options{}, ""},
		"small":                {Options{MemoryMiB: 511}, "memory"},
		"negative memory":      {Options{MemoryMiB: -1}, "memory"},
		"no cpus":              {Options{CPUs: -1}, "CPUs"},
		"many cpus":            {Options{CPUs: 65}, "CPUs"},
		"negative timeout":     {Options{BootTimeout: -1}, "timeout"},
		"writable":             {Options{Writable: []string{dir}}, ""},
		"writable root":        {Options{Writable: []string{"/"}}, "writable"},
		"writable root hidden": {Options{Writable: []string{"/usr/.."}}, "writable"},
		"writable relative":    {Options{Writable: []string{"out"}}, "writable"},
		"writable missing":     {Options{Writable: []string{dir + "/none"}}, "writable"},
		"writable file":        {Options{Writable: []string{file}}, "not a directory"},
		"state relative":       {Options{StateDir: "run"}, "state folder"},
		"state with space":     {Options{StateDir: "/run/a b"}, "state folder"},
		"state with comma":     {Options{StateDir: "/run/a,b"}, "state folder"},
		"state long":           {Options{StateDir: "/" + strings.Repeat("a", 80)}, "state folder"},
	} {
		_, err := c.o.normalise()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want an error about %q", name, err, c.want)
		}
	}
}

func TestNormaliseDefaults(t *testing.T) {
	o, err := Options{}.normalise()
	if err != nil {
		t.Fatal(err)
	}
	if o.MemoryMiB != 6144 || o.CPUs != 2 || o.BootTimeout != 90*time.Second || o.Log == nil {
		t.Errorf("defaults: %+v", o)
	}
}

func testTools() *Tools {
	return &Tools{Root: "/cache/lab/k", Manifest: ToolManifest{Kernel: "6.12.9-cloud-amd64"}}
}

func TestQEMUArgv(t *testing.T) {
	o := Options{StateDir: "/run/s", MemoryMiB: 1024, CPUs: 3, Writable: []string{"/out/"}}
	got := strings.Join(qemuArgv(testTools(), o), " ")
	for _, want := range []string{
		"/cache/lab/k/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 --library-path /cache/lab/k/usr/lib/x86_64-linux-gnu /cache/lab/k/usr/bin/qemu-system-x86_64",
		"-L /cache/lab/k/usr/share/qemu -L /cache/lab/k/usr/share/seabios",
		"-accel tcg,thread=multi -cpu max,+svm,+npt -smp 3 -m 1024M",
		"memory-backend-memfd,id=mem,size=1024M,share=on",
		"-kernel /cache/lab/k/lab-kernel/boot/vmlinuz-6.12.9-cloud-amd64",
		"rootfstype=virtiofs root=hostroot ro init=/run/s/init",
		"thaw.lab=1 thaw.lab.config=/run/s/boot.json",
		"socket,id=hostroot,path=/run/s/root.fs.sock -device vhost-user-fs-pci,chardev=hostroot,tag=hostroot",
		"socket,id=writable0,path=/run/s/0.fs.sock -device vhost-user-fs-pci,chardev=writable0,tag=writable0",
		"-no-reboot",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing of\n%s", want, got)
		}
	}
	if strings.Contains(got, "hostfwd") || strings.Contains(got, "-netdev") {
		t.Error("the lab has a network")
	}
}

func TestShareArgv(t *testing.T) {
	list := shares(Options{StateDir: "/run/s", Writable: []string{"/out/"}})
	if len(list) != 2 || list[0].path != "/" || list[1].path != "/out" {
		t.Fatalf("shares: %+v", list)
	}
	root, out := list[0].argv(testTools(), 4096), list[1].argv(testTools(), 4096)
	if !slices.Contains(root, "--readonly") {
		t.Error("the host's root is writable")
	}
	if slices.Contains(out, "--readonly") {
		t.Error("the writable folder is read only")
	}
	for _, want := range []string{"--sandbox=none", "--fd=3", "--shared-dir=/out", "--no-announce-submounts", "--rlimit-nofile=4096"} {
		if !slices.Contains(out, want) {
			t.Errorf("%s is missing of %v", want, out)
		}
	}
}

func TestMmdebstrapArgs(t *testing.T) {
	src := aptSource{Mirror: "http://m/debian", Options: []string{`Acquire::http::Proxy "http://p:1"`}}
	got := mmdebstrapArgs(src, "/tmp/hook", false)
	want := []string{
		"--mode=unshare", "--variant=extract", "--format=tar",
		"--include=qemu-system-x86,virtiofsd,kmod",
		`--extract-hook=APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" sh /tmp/hook "$1"`,
		`--aptopt=Acquire::http::Proxy "http://p:1"`,
		"trixie", "-", "http://m/debian",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := mmdebstrapArgs(src, "h", true)[0]; got != "--mode=root" {
		t.Errorf("as root: %s", got)
	}
}
