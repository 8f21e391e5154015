package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"thaw/internal/loopback"
)

// hostname of the lab.
const hostname = "thaw-lab"

// setUpKernel does what a distribution's init does to a fresh kernel: every
// cgroup controller handed down, loopback up, a name.
func setUpKernel() error {
	if err := enableControllers("/sys/fs/cgroup"); err != nil {
		return err
	}
	if err := loopback.Up(); err != nil {
		return fmt.Errorf("labinit: %w", err)
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("labinit: set host name: %w", err)
	}
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("labinit: set limit of open files: %w", err)
	}
	return nil
}

// controllers lists the cgroup controllers that the kernel offers at dir.
func controllers(dir string) ([]string, error) {
	b, err := os.ReadFile(dir + "/cgroup.controllers")
	if err != nil {
		return nil, fmt.Errorf("labinit: read controllers: %w", err)
	}
	return strings.Fields(string(b)), nil
}

func enableControllers(dir string) error {
	names, err := controllers(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte("+"+n), 0o644); err != nil {
			return fmt.Errorf("labinit: enable controller %s: %w", n, err)
		}
	}
	return nil
}

// openDevices gives the devices of a microVM host the modes that udev would: a
// jailed process is no root.
func openDevices() {
	for _, d := range []string{"/dev/kvm", "/dev/net/tun"} {
		if err := os.Chmod(d, 0o666); err != nil {
			fmt.Printf("labinit: open device: %v\n", err)
		}
	}
}
