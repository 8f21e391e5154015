package tracker

import (
	"errors"
	"testing"

	"thaw/vmm/dirty"
)

func TestCheck(t *testing.T) {
	available := map[string]bool{}
	for _, a := range Host() {
		available[string(a.Tracker)] = a.Err == nil
	}
	for _, c := range []struct {
		name  string
		rings bool
		ok    bool
	}{
		{"", false, true}, {"", true, true}, {"full", false, true}, {"full", true, true}, {"pagemap", true, available["pagemap"]},
		{"dirty-log", false, available["dirty-log"]}, {"dirty-log", true, false}, {"dirty-log-kept", true, false},
		{"dirty-ring", false, false}, {"dirty-ring", true, available["dirty-ring"]}, {"uffd-wp", false, available["uffd-wp"]},
		{"crystal-ball", false, false},
	} {
		err := Check(c.name, c.rings)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, dirty.ErrTracker) {
			t.Errorf("%q, rings %t: %v", c.name, c.rings, err)
		}
	}
}
