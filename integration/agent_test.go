package integration

import (
	"testing"

	"thaw/guestinit/guesttest"
	"thaw/internal/hostinfo"
)

// TestAgent runs the agent's cases in a real guest.
func TestAgent(t *testing.T) {
	list := []shape{{1, 512}, {2, 512}}
	if hostinfo.Detect().Kind == hostinfo.Lab {
		list = list[1:]
	}
	for _, k := range kernels(t) {
		for _, s := range list {
			t.Run(k.Manifest.Name+"/"+s.String(), func(t *testing.T) {
				g := bootGuest(t, k, s, "python", nil)
				guesttest.Run(t, g.client, guesttest.Options{Shutdown: true})
			})
		}
	}
}
