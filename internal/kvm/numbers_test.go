package kvm

import "testing"

// TestRequestNumbers compares with the values that <linux/kvm.h> gives on
// x86-64.
func TestRequestNumbers(t *testing.T) {
	for name, c := range map[string]struct{ got, want uintptr }{
		"KVM_RUN":                   {requestRun, 0xae80},
		"KVM_SET_IDENTITY_MAP_ADDR": {requestSetIdentityMap, 0x4008ae48},
		"KVM_IRQFD":                 {requestIrqfd, 0x4020ae76},
		"KVM_IOEVENTFD":             {requestIoeventfd, 0x4040ae79},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", name, c.got, c.want)
		}
	}
}
