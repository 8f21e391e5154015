package hostinfo

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// kvmGetAPIVersion is KVM_GET_API_VERSION, _IO(KVMIO, 0x00) (KVM api.rst §4.1).
const kvmGetAPIVersion = 0xae00

// kvmAPIVersion is the only version there has been since Linux 2.6.22.
const kvmAPIVersion = 12

type kvmProbe struct {
	version int
	err     error
}

// probeKVM opens /dev/kvm and asks for its API version.
func probeKVM() kvmProbe {
	fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return kvmProbe{err: fmt.Errorf("hostinfo: open /dev/kvm: %w", err)}
	}
	defer unix.Close(fd)
	v, err := unix.IoctlRetInt(fd, kvmGetAPIVersion)
	if err != nil {
		return kvmProbe{err: fmt.Errorf("hostinfo: KVM_GET_API_VERSION: %w", err)}
	}
	if v != kvmAPIVersion {
		return kvmProbe{version: v, err: fmt.Errorf("hostinfo: KVM API version is %d, not %d", v, kvmAPIVersion)}
	}
	return kvmProbe{version: v}
}
