package freemem

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestSize(t *testing.T) {
	total, available, err := Size()
	if err != nil {
		t.Fatal(err)
	}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		t.Fatal(err)
	}
	if want := int64(si.Totalram) * int64(si.Unit); total != want {
		t.Errorf("%d bytes in all, sysinfo says %d", total, want)
	}
	if available <= 0 || available > total {
		t.Errorf("%d bytes of %d are available", available, total)
	}
}
