package integration

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/internal/hostinfo"
	"thaw/kernel"
)

// TestProgramsOnHugePages looks where the code of the agent and of warm interpreters lies
// once a machine is ready to be saved: the agent's file is in tmpfs, and theirs in EROFS,
// where the tuned kernel has huge pages too. All of them go on. In the lab, where an
// interpreter takes twenty times as long to start, Python has to do.
func TestProgramsOnHugePages(t *testing.T) {
	cells := map[string]string{"python": "print(sum(range(1000)))", "node": "console.log(499500)"}
	image := "dual"
	if hostinfo.Detect().Kind == hostinfo.Lab {
		image = "python"
		delete(cells, "node")
	}
	for _, k := range kernels(t) {
		t.Run(k.Manifest.Name, func(t *testing.T) {
			g := bootGuest(t, k, shape{1, 1024}, image, nil)
			ids := map[string]uint64{}
			for runtime := range cells {
				w, err := g.client.Warm(t.Context(), agentproto.WarmRequest{Runtime: runtime, Timeout: 10 * time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				ids[runtime] = w.ExecID
			}
			if agent, programs := onHugePages(t, g.client); agent != 0 || programs != 0 {
				t.Errorf("%d KiB of the agent and %d KiB of files are on huge pages at first", agent, programs)
			}
			for range 2 { // as in the build of a template
				if _, err := g.client.Freeze(t.Context(), agentproto.FreezeRequest{Wait: agentproto.MaxFreezeWait, ReportFree: true}); err != nil {
					t.Fatal(err)
				}
				if err := g.client.Thaw(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			agent, programs := onHugePages(t, g.client)
			t.Logf("%d KiB of the agent, %d KiB of files", agent, programs)
			if agent < 4<<10 {
				t.Errorf("%d KiB of the agent are on huge pages: is the first root file system tmpfs, "+
					"and thaw-init linked with -D (Makefile)?", agent)
			}
			// Python's program has two whole ranges of 2 MiB that are used, Node's tens.
			if want := 4<<10 + (len(cells)-1)*20<<10; k.Manifest.Name == kernel.NameTuned && programs < want {
				t.Errorf("%d KiB of files are on huge pages, not %d", programs, want)
			}
			for runtime, source := range cells {
				var out bytes.Buffer
				if _, err := g.client.Code(t.Context(), agentproto.CodeRequest{ExecID: ids[runtime], Source: source}, agentclient.ExecIO{Stdout: &out}); err != nil || out.String() != "499500\n" {
					t.Errorf("%s: %q, %v", runtime, out.String(), err)
				}
			}
		})
	}
}

// onHugePages returns how many KiB of tmpfs, and of other files, the guest's processes
// have mapped as huge pages.
func onHugePages(t *testing.T, c *agentclient.Client) (tmpfs, files int) {
	t.Helper()
	for line := range strings.Lines(shell(t, c, "cat /proc/meminfo")) {
		for name, to := range map[string]*int{"ShmemPmdMapped": &tmpfs, "FilePmdMapped": &files} {
			if rest, ok := strings.CutPrefix(line, name+":"); ok {
				if _, err := fmt.Sscan(rest, to); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return tmpfs, files
}
