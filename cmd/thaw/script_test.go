package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"thaw/broker/assets"
	"thaw/internal/hostinfo"
	"thaw/internal/kvmtest"
)

// The scripts in testdata/script drive real programs: each starts a daemon of its
// own on the real kernel and image. They need KVM, kernel and image; without them
// they are skipped, or fail when REQUIRE_KVM is set. THAW_BIN names a folder of
// built programs (else they are built), THAW_TEST_KERNEL and THAW_TEST_IMAGES
// others than those of the cache.

func TestScripts(t *testing.T) {
	kernel, images := requireMachine(t)
	programs := builtPrograms(t)
	host := hostinfo.Detect()
	times := map[string]string{"SHORT": "1s", "LONG": "20s", "READY": "8s"}
	if host.Kind == hostinfo.Lab { // everything takes ten to twenty times as long there
		times = map[string]string{"SHORT": "30s", "LONG": "300s", "READY": "120s"}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			for k, v := range times {
				env.Setenv(k, v)
			}
			env.Setenv("PATH", programs+":"+os.Getenv("PATH"))
			env.Setenv("BIN", programs)
			env.Setenv("KERNEL", kernel)
			env.Setenv("IMAGES", images)
			env.Setenv("XDG_CACHE_HOME", os.Getenv("XDG_CACHE_HOME"))
			env.Setenv("HOME", os.Getenv("HOME"))
			env.Setenv("THAW_HOST", "unix://"+filepath.Join(env.WorkDir, "d.sock"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond != "isolated" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return len(host.Missing()) == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": cmdDaemon, "stopdaemon": cmdStopDaemon, "killvmm": cmdKillVMM, "novmm": cmdNoVMM, "waitjob": cmdWaitJob, "cut": cmdCut, "init": cmdInit,
		},
	})
}

// builtPrograms is the folder of the programs under test. Machines' user ids must
// be able to execute thaw-vmm, not to reach it.
func builtPrograms(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("THAW_BIN"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "thaw/cmd/thaw", "thaw/cmd/thawd", "thaw/cmd/thaw-vmm", "thaw/cmd/thaw-init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return dir
}

// requireMachine says what to boot, or skips.
func requireMachine(t *testing.T) (kernel, images string) {
	t.Helper()
	if hostinfo.Detect().Kind == hostinfo.None {
		kvmtest.Unavailable(t, "no usable KVM")
	}
	if os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "not root")
	}
	kernel, images = os.Getenv("THAW_TEST_KERNEL"), os.Getenv("THAW_TEST_IMAGES")
	published, err := assets.Dir()
	if err != nil {
		t.Fatal(err)
	}
	if kernel == "" {
		kernel = filepath.Join(published, assets.KernelName("tuned"))
	}
	if images == "" {
		images = published
	}
	for _, path := range []string{kernel, filepath.Join(images, assets.ImageName("python")), filepath.Join(images, assets.ImageName("node"))} {
		if _, err := os.Stat(path); err != nil {
			kvmtest.Unavailable(t, "nothing to boot: %v (run `make kernel images`)", err)
		}
	}
	return kernel, images
}
