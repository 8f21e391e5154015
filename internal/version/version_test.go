package version

import (
	"runtime"
	"testing"
)

func TestGet(t *testing.T) {
	if v := Get(); v.Version == "" || v.Go != runtime.Version() {
		t.Errorf("got %+v", v)
	}
}

func TestShort(t *testing.T) {
	for want, i := range map[string]Info{
		"v1.2.3":       {Version: "v1.2.3"},
		"0123456789ab": {Version: "v1.2.3", Commit: "0123456789abcdef"},
		"unknown":      {Version: "unknown", Commit: "01"},
	} {
		if got := i.Short(); got != want {
			t.Errorf("%+v: got %q, want %q", i, got, want)
		}
	}
}
