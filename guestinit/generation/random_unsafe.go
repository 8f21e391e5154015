package generation

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// poolInfo is struct rand_pool_info of include/uapi/linux/random.h.
type poolInfo struct {
	entropyBits int32
	size        int32
	buf         [agentproto.SeedSize]byte
}

// addEntropy mixes the seed into the kernel's pool and credits all of it.
func addEntropy(fd int, info *poolInfo) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(info))); errno != 0 {
		return fmt.Errorf("add entropy: %w", errno)
	}
	return nil
}
