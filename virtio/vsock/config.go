package vsock

import (
	"encoding/binary"
	"fmt"
)

// Configuration space, virtio 1.3 §5.10.4: the guest's context id.
const configSize = 8

// Context ids with a meaning, virtio 1.3 §5.10.4.
const (
	hostCID  = 2
	firstCID = 3
	lastCID  = 1<<32 - 2 // the upper 32 bits are reserved
)

func checkCID(cid uint64) error {
	if cid < firstCID || cid > lastCID {
		return fmt.Errorf("context id %d is reserved", cid)
	}
	return nil
}

func encodeConfig(cid uint64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 0, configSize), cid)
}
