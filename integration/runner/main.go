// Command runner is the init of a test's guest. It runs each file in /tests, one
// after the other: a line "RESULT name ok" or "RESULT name FAIL reason" for each
// goes to the console. The kernel's command line asks for more: runner.net for a
// transfer over eth0, runner.panic for a panic at the end instead of power off.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long one program may take.
const patience = 2 * time.Minute

// transferSize is how much goes over the network each way, in bytes.
const transferSize = 64 << 20

func main() {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}} {
		os.MkdirAll(m[1], 0o755)
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil {
			fmt.Printf("runner: mount %s: %v\n", m[1], err)
		}
	}
	loadModules()
	names, _ := filepath.Glob("/tests/*")
	fmt.Printf("\nrunner: %d programs\n", len(names))
	for _, name := range names {
		fmt.Printf("RESULT %s %s\n", filepath.Base(name), run(name))
	}
	if option("runner.net") {
		if err := transfer(transferSize); err != nil {
			fmt.Printf("NET FAIL %v\n", err)
		}
	}
	fmt.Println("runner: done")
	time.Sleep(200 * time.Millisecond) // the console drains
	if option("runner.panic") {
		os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
	}
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// loadModules loads what a kernel with modules needs: /modules, by name.
func loadModules() {
	names, _ := filepath.Glob("/modules/*")
	for _, name := range names {
		f, err := os.Open(name)
		if err == nil {
			err = unix.FinitModule(int(f.Fd()), "", 0)
			f.Close()
		}
		if err != nil {
			fmt.Printf("runner: load %s: %v\n", filepath.Base(name), err)
		}
	}
}

func run(name string) string {
	cmd := exec.Command(name)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Dir = "/tmp"
	if err := cmd.Start(); err != nil {
		return "FAIL " + err.Error()
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return "FAIL " + err.Error()
	}
	return "ok"
}
