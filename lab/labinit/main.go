// Command labinit is PID 1 of the lab, the emulated host.
//
// It is one static program with three faces, told apart by how it is started:
//
//   - as PID 1 it lays a writable overlay over the host's tree, mounts what a
//     host has, loads modules, starts itself as the server and reaps orphans;
//   - as "labinit serve" it answers the host's requests on the lab's port;
//   - under the name "modprobe" it is what the kernel calls for a missing module.
//
// PID 1 and the server are two processes, since a PID 1 that reaps every child
// would take exit codes away from the server's own waiting.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	switch {
	case filepath.Base(os.Args[0]) == "modprobe":
		fatal(execModprobe(os.Args[1:]))
	case len(os.Args) > 1 && os.Args[1] == "serve":
		fatal(serve())
	case os.Getpid() == 1:
		err := pid1()
		// The console's log is where the host looks for the reason.
		fmt.Println(err)
		unix.Sync()
		unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
		select {}
	default:
		fatal(fmt.Errorf("labinit: not PID 1"))
	}
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pid1 brings the lab up and returns only when the lab must go down.
func pid1() error {
	if err := mountEarly(); err != nil {
		return err
	}
	cfg, err := readConfig()
	if err != nil {
		return err
	}
	if err := enterOverlay(cfg); err != nil {
		return err
	}
	if err := mountRest(cfg); err != nil {
		return err
	}
	if err := saveConfig(cfg); err != nil {
		return err
	}
	if err := keepSelf(); err != nil {
		return err
	}
	if err := setUpKernel(); err != nil {
		return err
	}
	loadModules(cfg)
	openDevices()
	return superviseServer()
}
