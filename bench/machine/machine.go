// Package machine boots the same guest in Thaw's machine and in QEMU's
// microvm, so that they can be measured side by side.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Boot is what a machine is made of: the same for every Side.
type Boot struct {
	Kernel, Initrd string
	Arguments      string // added to the kernel's command line
	VCPUs          int
	MemoryMiB      int
	Disks          []Disk
	Tap            *os.File // or nil: no network
}

// Disk is a raw file.
type Disk struct {
	Path     string
	ReadOnly bool
}

// Side makes machines of one kind.
type Side interface {
	Name() string
	// UntilLine boots and returns the time from the start of the process to
	// the moment at which line is on the console. The machine is gone then.
	UntilLine(ctx context.Context, b Boot, line string) (time.Duration, error)
	// UntilEnd boots, waits until the guest ends the machine, and returns the
	// console.
	UntilEnd(ctx context.Context, b Boot) ([]byte, error)
}

// ErrNoLine is wrapped when the machine ended without the line.
var ErrNoLine = errors.New("the machine ended early")

// mac is every guest's: each is alone in its network.
var mac = [6]byte{0x02, 0, 0, 0x54, 0x48, 0x02}

// cmdline is the kernel's command line, the same on both sides.
func cmdline(b Boot, pvm bool) string {
	line := "console=ttyS0 quiet reboot=t panic=-1"
	if pvm {
		line += " nofsgsbase" // as thawd boots guests there: two exits less at each context switch
	}
	if b.Arguments != "" {
		line += " " + b.Arguments
	}
	return line
}

// lastLines is the end of a console, for messages.
func lastLines(console []byte) string {
	const most = 1500
	return fmt.Sprintf("console ends: %q", console[max(0, len(console)-most):])
}
