package integration

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/internal/hostinfo"
	"thaw/snapshot/memimage"
	"thaw/snapshot/pageindex"
	"thaw/vmm/vmmproc"
)

// churn makes and drops many page tables: programs start and end, and memory is
// taken and given back.
const churn = `for i in 1 2 3; do ls -la / >/dev/null || echo BAD; done
python3 -c 'x = [bytes(5000) for i in range(300)]; print(sum(map(len, x)))'`

// TestRollbackAfterChurn rolls one machine back again and again, each time after
// it has run programs. Where KVM shadows page tables, stale ones would show.
func TestRollbackAfterChurn(t *testing.T) {
	list, rounds := []shape{{1, 512}, {2, 3072}}, 20
	if hostinfo.Detect().Kind == hostinfo.Lab {
		list, rounds = list[:1], 3
	}
	for _, k := range kernels(t) {
		for _, s := range list {
			t.Run(k.Manifest.Name+"/"+s.String(), func(t *testing.T) {
				var cold vmmproc.Spec
				g := bootGuest(t, k, s, "python", func(m *vmmproc.Spec) { cold = *m })
				shell(t, g.client, "true") // by then it has told that it is ready
				image := saveCold(t, g, &cold)
				p, connect := shellOf(t, cold)
				if _, err := p.Restore(t.Context(), image); err != nil {
					t.Fatal(err)
				}
				for round := range rounds {
					if err := p.Resume(t.Context()); err != nil {
						t.Fatal(err)
					}
					client := connect()
					if out := shell(t, client, churn); out != "1500000\n" {
						t.Fatalf("round %d: %q", round, out)
					}
					client.Close()
					if _, err := p.Rollback(t.Context(), image, nil); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// shell runs a script in the guest and returns what it wrote.
func shell(t *testing.T, c *agentclient.Client, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	p, err := c.Exec(ctx, agentproto.ExecRequest{Argv: []string{"/bin/sh", "-c", script}}, agentclient.ExecIO{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	status, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if status.Cause != agentproto.CauseExited || status.Code != 0 {
		t.Errorf("script ended with %s, code %d", status.Cause, status.Code)
	}
	return out.String()
}

// saveCold saves a machine that was booted, ends it, and returns the image.
func saveCold(t *testing.T, g *guest, cold *vmmproc.Spec) vmmproc.Image {
	t.Helper()
	g.client.Close()
	state := tempFile(t, "state", 0)
	top := tempFile(t, "top", 1<<30)
	if _, err := g.Save(t.Context(), vmmproc.SaveSpec{State: state, Tops: []*os.File{top}}); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	index, err := pageindex.FromHoles(cold.Memory, int64(cold.MemoryBytes))
	if err != nil {
		t.Fatal(err)
	}
	plan := tempFile(t, "plan", 0)
	if _, err := plan.Write(memimage.Plan{Base: index, Memory: index}.Encode()); err != nil {
		t.Fatal(err)
	}
	disks := []vmmproc.Disk{cold.Disks[0], cold.Disks[1]}
	disks[1].Layers = append(disks[1].Layers[:2:2], tempFile(t, "new", 1<<30))
	return vmmproc.Image{State: state, Plan: plan, Base: cold.Memory, Disks: disks}
}

// shellOf starts a shell for machines like cold, and returns what makes a client
// for what it becomes.
func shellOf(t *testing.T, cold vmmproc.Spec) (*vmmproc.Process, func() *agentclient.Client) {
	t.Helper()
	p, dial := emptyShell(t, cold)
	return p, func() *agentclient.Client { return agentclient.New(dial) }
}

// tempFile is a file in memory of the given size.
func tempFile(t *testing.T, name string, size int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}
