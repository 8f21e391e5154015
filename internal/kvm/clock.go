package kvm

import (
	"errors"
	"fmt"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
	"golang.org/x/sys/unix"
)

// Clock returns the machine's kvmclock, in nanoseconds since it was made
// (section 4.29).
func (vm *VM) Clock() (uint64, error) {
	var d gokvm.ClockData
	if err := ioctl(vm.fd, requestGetClock, &d); err != nil {
		return 0, fmt.Errorf("kvm: get clock: %w", err)
	}
	return d.Clock, nil
}

// SetClock makes the machine's kvmclock go on from ns (section 4.30). Without
// the flag KVM_CLOCK_REALTIME, KVM does not add the time that has passed since
// the value was read.
func (vm *VM) SetClock(ns uint64) error {
	if err := ioctl(vm.fd, requestSetClock, &gokvm.ClockData{Clock: ns}); err != nil {
		return fmt.Errorf("kvm: set clock: %w", err)
	}
	return nil
}

// ClockStopped tells a guest that uses kvmclock that it has been paused, so
// that its watchdogs do not bark (section 4.60). A guest that does not use it
// need not be told.
func (c *VCPU) ClockStopped() error {
	_, err := plainIoctl(c.fd, requestKVMClockCtrl)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: kvmclock is not in use
		return fmt.Errorf("kvm: tell vcpu %d of a pause: %w", c.id, err)
	}
	return nil
}

// TSCKHz returns the frequency of the processor's time stamp counter
// (section 4.56).
func (c *VCPU) TSCKHz() (int, error) {
	v, err := plainIoctl(c.fd, requestGetTSCKHz)
	if err != nil {
		return 0, fmt.Errorf("kvm: get tsc frequency of vcpu %d: %w", c.id, err)
	}
	return v, nil
}

// plainIoctl is an ioctl without an argument.
func plainIoctl(fd, request uintptr) (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}
