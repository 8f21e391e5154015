// Package kvmtest is how tests get at KVM: they skip where there is none,
// unless REQUIRE_KVM=1 says that there must be.
package kvmtest

import (
	"os"
	"testing"
)

// Required says whether a missing KVM, kernel or image is a failure.
func Required() bool { return os.Getenv("REQUIRE_KVM") == "1" }

// Unavailable skips the test for the reason given, or fails it where KVM is
// required.
func Unavailable(t testing.TB, format string, args ...any) {
	t.Helper()
	if Required() {
		t.Fatalf("REQUIRE_KVM=1: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Device opens /dev/kvm and closes it when the test ends.
func Device(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		Unavailable(t, "no KVM: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
