package machine

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The program needs no machine: it is an ordinary one, too.
func TestTrivialInitRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "init")
	if err := WriteTrivialInit(path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != TrivialLine+"\n" {
		t.Errorf("printed %q, %v", line, err)
	}
	cancel()
	if err := cmd.Wait(); err == nil {
		t.Error("it ended by itself: an init that ends is a kernel's panic")
	}
}

func TestBothSidesGetTheSameCommandLine(t *testing.T) {
	b := Boot{Arguments: "thaw.bench=x"}
	for _, pvm := range []bool{false, true} {
		line := cmdline(b, pvm)
		if !strings.HasSuffix(line, " thaw.bench=x") || strings.Contains(line, "nofsgsbase") != pvm {
			t.Errorf("pvm %v: %q", pvm, line)
		}
		if q := (&QEMU{PVM: pvm}).Arguments(b); !slices.Contains(q, line) {
			t.Errorf("qemu's arguments %q lack %q", q, line)
		}
	}
}

func TestQEMUArguments(t *testing.T) {
	b := Boot{Kernel: "k", Initrd: "i", VCPUs: 2, MemoryMiB: 512, Disks: []Disk{{"image", true}, {"data", false}}}
	plain := strings.Join((&QEMU{}).Arguments(b), " ")
	for _, want := range []string{
		"-smp 2 -m 512M", "-cpu host ", "file=image,format=raw,aio=threads,cache=writeback,readonly=on", "file=data,format=raw,aio=threads,cache=writeback,readonly=off",
	} {
		if !strings.Contains(plain, want) {
			t.Errorf("%q lacks %q", plain, want)
		}
	}
	if !strings.Contains(plain, "acpi=on") || !strings.Contains(strings.Join((&QEMU{NoACPI: true}).Arguments(b), " "), "acpi=off") {
		t.Errorf("%q has not QEMU's default, or none can leave it", plain)
	}
	if strings.Contains(plain, "netdev") {
		t.Errorf("%q has a network", plain)
	}
	b.Tap = os.Stdin
	if amd := strings.Join((&QEMU{AMD: true}).Arguments(b), " "); !strings.Contains(amd, "host,-arch-capabilities") || !strings.Contains(amd, "fd=3,vhost=off") {
		t.Errorf("arguments %q", amd)
	}
}

func TestFindQEMUSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := FindQEMU(t.Context(), false, false); err == nil || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("got %v", err)
	}
}
