package boot

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// fiFreeze is FIFREEZE, _IOWR('X', 119, int).
const fiFreeze = 0xc0045877

// PowerOff ends the machine in order. The agent has killed every job by then.
// It does not return.
//
// The root cannot be unmounted from under the running PID 1, and need not be:
// a freeze writes everything, empties the journal and marks the disk clean,
// as an unmount would.
func (m *Machine) PowerOff() {
	unix.Sync()
	if err := unix.IoctlSetInt(int(m.disk.Fd()), fiFreeze, 0); err != nil {
		Log("freeze disk: %v", err)
	}
	halt(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// Fatal ends the machine because of err, which the console tells the host.
// It does not return.
func Fatal(err error) {
	Log("fatal: %v", err)
	unix.Sync()
	halt(unix.LINUX_REBOOT_CMD_RESTART)
}

// halt ends the machine. Where it cannot be powered off, a restart ends it as
// well: the VMM takes a reset as the end.
func halt(cmd int) {
	err := unix.Reboot(cmd)
	if cmd != unix.LINUX_REBOOT_CMD_RESTART {
		Log("power off: %v", err)
		err = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}
	Log("restart: %v", err)
	time.Sleep(time.Second)
	os.Exit(1) // PID 1 leaving makes the kernel panic: the last way out
}
