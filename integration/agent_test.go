package integration

import (
	"testing"

	"thaw/guestinit/guesttest"
)

// TestAgent runs the agent's cases in a real guest.
func TestAgent(t *testing.T) {
	for _, k := range kernels(t) {
		for _, s := range []shape{{1, 512}, {2, 512}} {
			t.Run(k.Manifest.Name+"/"+s.String(), func(t *testing.T) {
				g := bootGuest(t, k, s, "python", nil)
				guesttest.Run(t, g.client, guesttest.Options{Shutdown: true})
			})
		}
	}
}
