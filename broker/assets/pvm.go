package assets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// pvmMarker is a message that only a kernel with pvm-native-guest.patch holds.
var pvmMarker = []byte("pvm: user mode has xfeatures")

// RunsOnPVM reports whether a kernel image was built to run natively on hosts
// whose KVM works by page tables. It reads the whole file, once at a daemon's
// start; a compressed kernel counts as one that was not.
func RunsOnPVM(kernel *os.File) (bool, error) {
	const chunk = 1 << 20
	buf := make([]byte, chunk+len(pvmMarker))
	for off := int64(0); ; off += chunk {
		n, err := kernel.ReadAt(buf, off)
		if bytes.Contains(buf[:n], pvmMarker) {
			return true, nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("assets: read kernel: %w", err)
		}
	}
}
