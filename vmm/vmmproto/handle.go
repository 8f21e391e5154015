package vmmproto

import "fmt"

// Handle makes the process a handler of the write faults of another one, instead of a machine. It is the first
// message and the last. Descriptors: a socket to the other process, that one's memory (/proc/PID/mem).
type Handle struct {
	MemoryBytes uint64 // of the machine
}

func (*Handle) Kind() Kind       { return KindHandle }
func (*Handle) Descriptors() int { return 2 }

// Validate implements Message.
func (m *Handle) Validate() error {
	if m.MemoryBytes == 0 || m.MemoryBytes > MaxMemory || m.MemoryBytes%4096 != 0 {
		return fmt.Errorf("memory_bytes %d: not a multiple of 4096 in 4096..%d", m.MemoryBytes, int64(MaxMemory))
	}
	return nil
}
