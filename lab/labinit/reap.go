package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// selfPath is this program's file. It was started from the host's /run, which
// the lab's own /run hides, so a copy is kept.
func selfPath() string { return runDir + "/init" }

// superviseServer starts the server and reaps every process until the server
// has ended.
func superviseServer() error {
	attr := &syscall.ProcAttr{
		Env:   []string{"PATH=" + defaultPath, "HOME=/root"},
		Files: []uintptr{0, 1, 2},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	pid, err := syscall.ForkExec(selfPath(), []string{"labinit", "serve"}, attr)
	if err != nil {
		return fmt.Errorf("labinit: start server: %w", err)
	}
	for {
		var ws unix.WaitStatus
		got, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("labinit: wait: %w", err)
		case got == pid:
			return fmt.Errorf("labinit: server ended (status %#x): going down", uint32(ws))
		}
	}
}

// keepSelf copies this program into the lab's own memory.
func keepSelf() error {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("labinit: read myself: %w", err)
	}
	if err := os.WriteFile(selfPath(), b, 0o755); err != nil {
		return fmt.Errorf("labinit: keep myself: %w", err)
	}
	return nil
}
