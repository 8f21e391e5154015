package report

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestBusy(t *testing.T) {
	proc := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(proc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("loadavg", "0.30 1.00 2.00 1/100 4711\n")
	write("1/comm", "init\n")
	write("net/comm", "thaw-vmm\n")
	if got := busy(proc, 2); len(got) != 0 {
		t.Errorf("an idle host: %q", got)
	}
	write("loadavg", "1.75 1.00 2.00 3/100 4711\n")
	write("7/comm", "thaw-vmm\n")
	write("8/comm", "thaw-vmm\n")
	write("9/comm", "qemu-system-x86\n")
	want := []string{"load average is 1.75 on 2 CPUs", "2 machines of others run (thaw-vmm)", "1 machines of others run (qemu-system)"}
	if got := busy(proc, 2); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	write("loadavg", "?")
	if got := busy(proc, 2); len(got) != 2 {
		t.Errorf("%q", got)
	}
}
