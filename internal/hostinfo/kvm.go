package hostinfo

import (
	"fmt"
	"os"

	"thaw/internal/kvm"
)

// probeKVM opens /dev/kvm and looks whether it can run machines.
func probeKVM() error {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("hostinfo: %w", err)
	}
	defer f.Close()
	_, err = kvm.Open(f)
	return err
}
