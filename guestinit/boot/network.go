package boot

import (
	"fmt"
	"os"

	"thaw/guestinit/netconf"
)

// networkInterface is the only one that a machine has.
const networkInterface = "eth0"

// configureNetwork gives the interface the addresses that the command line
// names, if it names any.
func configureNetwork() error {
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	list, err := netconf.Parse(string(cmdline))
	if err != nil || len(list) == 0 {
		return err
	}
	if err := waitFor("/sys/class/net/" + networkInterface); err != nil {
		return fmt.Errorf("interface: %w", err)
	}
	return netconf.Apply(networkInterface, list)
}
