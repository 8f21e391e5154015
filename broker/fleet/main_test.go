package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"thaw/internal/kvmtest"
)

// binDir has thaw-vmm and thaw-init, built by TestMain.
var binDir string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		if kvmtest.Required() {
			fmt.Println("fleet: tests need root")
			return 1
		}
		fmt.Println("fleet: skipped: tests need root, to map user ids")
		return 0
	}
	if binDir = os.Getenv(killedBin); binDir != "" {
		return m.Run() // the daemon of TestDaemonKilled
	}
	var err error
	if binDir, err = os.MkdirTemp("", "fleet-test-"); err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(binDir)
	for _, name := range []string{"thaw-vmm", "thaw-init"} {
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(binDir, name), "thaw/cmd/"+name)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Printf("build %s: %v\n%s", name, err, out)
			return 1
		}
	}
	before := openFiles()
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Println(err)
		code = max(code, 1)
	}
	if after := openFiles(); len(after) > len(before)+1 { // one for the poller, made by the first test
		fmt.Printf("descriptors leaked: %d before, %d after:\n%s\n", len(before), len(after), strings.Join(after, "\n"))
		code = max(code, 1)
	}
	if b, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid())); len(strings.Fields(string(b))) > 0 {
		fmt.Printf("processes leaked: %s\n", b)
		code = max(code, 1)
	}
	return code
}

func openFiles() []string {
	var list []string
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(target, "eventpoll") && !strings.Contains(target, "eventfd") {
			list = append(list, e.Name()+" "+target)
		}
	}
	sort.Strings(list)
	return list
}
