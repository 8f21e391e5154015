package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"thaw/internal/hostinfo"
	"thaw/internal/kvmtest"
	"thaw/kernel"
	"thaw/vmm/vmmproc"
)

var result = regexp.MustCompile(`(?m)^RESULT (\S+) (.*?)\r?$`)

// TestKernelPrograms runs the kernel's test programs in a guest of each
// shape.
func TestKernelPrograms(t *testing.T) {
	dir, err := kernel.GuestTests(t.Context(), os.Stderr)
	if err != nil {
		kvmtest.Unavailable(t, "guest tests: %v", err)
	}
	names, err := kernel.GuestTestNames()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"init": filepath.Join(bin, "runner")}
	for _, name := range names {
		files["tests/"+name] = filepath.Join(dir, name)
	}
	for _, k := range kernels(t) {
		initrd := archive(t, k, files)
		for _, s := range shapes() {
			t.Run(k.Manifest.Name+"/"+s.String(), func(t *testing.T) {
				m := spec(t, k, s, initrd)
				m.Balloon = true // zeroed_pages.c reports to it
				if hostinfo.Detect().Kind == hostinfo.Lab {
					m.Cmdline += " runner.emulated" // see isolation.c
				}
				p := start(t, m)
				exit := wait(t, p, 10*time.Minute)
				found := map[string]string{}
				for _, m := range result.FindAllSubmatch(exit.Console, -1) {
					found[string(m[1])] = string(m[2])
				}
				for _, name := range names {
					if found[name] != "ok" {
						t.Errorf("%s: %q", name, found[name])
					}
				}
				if exit.Reason != vmmproc.Poweroff {
					t.Errorf("machine ended: %s", exit)
				}
				if t.Failed() || !bytes.Contains(exit.Console, []byte("runner: done")) {
					t.Errorf("console:\n%s", exit.Console)
				}
			})
		}
	}
}
