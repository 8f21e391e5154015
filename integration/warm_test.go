package integration

import (
	"testing"

	"thaw/guestinit/warm/warmtest"
	"thaw/internal/hostinfo"
)

// TestWarm runs the cases of warm interpreters in a real guest. In the lab, where an
// interpreter takes twenty times as long to start, a sample of the scripts has to do.
func TestWarm(t *testing.T) {
	every := 1
	if hostinfo.Detect().Kind == hostinfo.Lab {
		every = 20
	}
	k := kernels(t)[0]
	g := bootGuest(t, k, shape{2, 1024}, "dual", nil)
	warmtest.Run(t, g.client, every, "python", "node")
}
