package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestScripts boots every machine.
func TestScripts(t *testing.T) { testScripts(t, false) }

// TestScriptsWarm runs the same scripts where machines are restored from templates,
// and those that need them.
func TestScriptsWarm(t *testing.T) { testScripts(t, true) }

func testScripts(t *testing.T, warm bool) {
	kernel, images := requireMachine(t)
	host := hostinfo.Detect()
	if warm && host.Kind == hostinfo.Lab {
		t.Skip("templates of two images in two sizes and every script again take more than half an hour in the lab; integration restores machines there")
	}
	programs := builtPrograms(t)
	templates := ""
	if warm {
		templates = makeTemplates(t, programs, kernel, images)
	}
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
			env.Setenv("TEMPLATES", "off")
			if warm {
				env.Setenv("TEMPLATES", "on")
				if err := copyTemplates(templates, filepath.Join(env.WorkDir, "state", "snapshots")); err != nil {
					return err
				}
			}
			env.Setenv("IMAGES", images)
			env.Setenv("XDG_CACHE_HOME", os.Getenv("XDG_CACHE_HOME"))
			env.Setenv("HOME", os.Getenv("HOME"))
			env.Setenv("THAW_HOST", "unix://"+filepath.Join(env.WorkDir, "d.sock"))
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "isolated":
				return len(host.Missing()) == 0, nil
			case "warm":
				return warm, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
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

// makeTemplates makes what jobs and sandboxes of the scripts start from, once, and
// returns the folder of snapshots.
func makeTemplates(t *testing.T, programs, kernel, images string) string {
	t.Helper()
	dir := t.TempDir()
	socket, state := filepath.Join(dir, "d.sock"), filepath.Join(dir, "state")
	var log bytes.Buffer
	daemon := exec.Command(filepath.Join(programs, "thawd"), "--dev", "--socket", socket, "--state-dir", state, "--kernel", kernel, "--images", images)
	daemon.Stderr = &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		daemon.Process.Signal(syscall.SIGTERM)
		if err := daemon.Wait(); err != nil {
			t.Errorf("thawd: %v\n%s", err, &log)
		}
	}()
	for _, args := range [][]string{{"python", "512"}, {"python", "1024"}, {"node", "512"}, {"node", "1024"}} {
		cmd := exec.Command(filepath.Join(programs, "thaw"), "--host", "unix://"+socket, "sandbox", "create", "--image", args[0], "--memory", args[1])
		var out []byte
		var err error
		for range 100 { // until the daemon answers
			if out, err = cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no daemon answers") {
				break
			}
			time.Sleep(50 * time.Millisecond)
			cmd = exec.Command(cmd.Path, cmd.Args[1:]...)
		}
		if err != nil {
			t.Fatalf("make templates: %v\n%s", err, out)
		}
	}
	return filepath.Join(state, "snapshots")
}

// copyTemplates gives a script's daemon a store of its own. Layers have holes.
func copyTemplates(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", "--sparse=always", "--reflink=auto", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy templates: %w: %s", err, out)
	}
	return nil
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
