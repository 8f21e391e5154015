package vmmproc

import (
	"os"
	"sync"

	"thaw/internal/kvm"
)

// cpuid is what KVM offers guests of this host, which is the same in every process: to ask costs half a millisecond on
// hosts that are virtual themselves, where each leaf is an exit. It is kept for the daemon's life: whoever loads kvm anew, with
// other parameters, starts the daemon anew.
var cpuid struct {
	sync.Mutex
	encoded []byte // nil: not known yet
}

// supportedCPUID asks once. Nil is for a device that does not answer: the machine asks by itself then, and says why it
// cannot be made.
func supportedCPUID(dev *os.File) []byte {
	cpuid.Lock()
	defer cpuid.Unlock()
	if cpuid.encoded != nil || dev == nil {
		return cpuid.encoded
	}
	system, err := kvm.Open(dev)
	if err != nil {
		return nil
	}
	entries, err := system.SupportedCPUID()
	if err != nil {
		return nil
	}
	cpuid.encoded = kvm.EncodeCPUID(entries)
	return cpuid.encoded
}
