package integration

import (
	"testing"

	"thaw/guestinit/warm/warmtest"
)

// TestWarm runs the cases of warm interpreters in a real guest.
func TestWarm(t *testing.T) {
	k := kernels(t)[0]
	g := bootGuest(t, k, shape{2, 1024}, "dual", nil)
	warmtest.Run(t, g.client, "python", "node")
}
