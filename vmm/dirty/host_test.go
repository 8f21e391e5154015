package dirty

import (
	"errors"
	"testing"

	"thaw/internal/kvmtest"
)

func TestHost(t *testing.T) {
	kvmtest.Device(t)
	list := Host()
	for _, a := range list {
		if a.About == "" || a.Err != nil && !errors.Is(a.Err, ErrTracker) {
			t.Errorf("%+v", a)
		}
		t.Logf("%s: %s: %v", a.Tracker, a.About, a.Err)
	}
	if list[len(list)-1].Tracker != Full || list[len(list)-1].Err != nil {
		t.Error("the reference is not available")
	}
}
