package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/internal/guestmem"
	"thaw/internal/hostinfo"
	"thaw/kernel"
	"thaw/snapshot/format"
	"thaw/snapshot/memimage"
	"thaw/snapshot/pageindex"
	"thaw/vmm/vmmproc"
)

// programs are what runs in guests while they are saved and restored.
//
//go:embed programs
var programs embed.FS

const diskSize = 1 << 30

// checkpoint is a saved machine: all that a restore needs but the top of its
// writable disk, which each machine has for itself.
type checkpoint struct {
	cold         vmmproc.Spec // of the machine that was booted
	state        *os.File
	base, memory *pageindex.Index
	overlays     []*os.File
	layers       []*os.File // of vdb
}

// image is what a machine is given that goes on from c.
func (c *checkpoint) image(t *testing.T, top *os.File) vmmproc.Image {
	t.Helper()
	plan := tempFile(t, "plan", 0)
	if _, err := plan.Write(memimage.Plan{Base: c.base, Memory: c.memory}.Encode()); err != nil {
		t.Fatal(err)
	}
	return vmmproc.Image{
		State: c.state, Plan: plan, Base: c.cold.Memory, Overlays: c.overlays,
		Disks: []vmmproc.Disk{c.cold.Disks[0], {ID: "vdb", Layers: append(c.layers[:len(c.layers):len(c.layers)], top)}},
	}
}

// template boots a machine, saves it and ends it.
func template(t *testing.T, k *kernel.Kernel, s shape, change func(*vmmproc.Spec)) *checkpoint {
	t.Helper()
	c := new(checkpoint)
	g := bootGuest(t, k, s, "python", func(m *vmmproc.Spec) {
		if change != nil {
			change(m)
		}
		c.cold = *m
	})
	shell(t, g.client, "true") // by then it has told that it is ready
	image := saveCold(t, g, &c.cold)
	var err error
	if c.base, err = pageindex.FromHoles(c.cold.Memory, int64(c.cold.MemoryBytes)); err != nil {
		t.Fatal(err)
	}
	c.memory, c.state = c.base, image.State
	layers := image.Disks[1].Layers
	c.layers = layers[:len(layers)-1]
	return c
}

// box is a restored machine.
type box struct {
	*vmmproc.Process
	from *checkpoint // that it was restored from, rolled back to or saved as last
	top  *os.File    // of vdb
	dial func(ctx context.Context) (net.Conn, error)
	ack  time.Duration // that its last generation took
}

// restore makes a machine, paused. n is its network, or nil where the template
// has none.
func restore(t *testing.T, c *checkpoint, n *namespace) *box {
	t.Helper()
	s := c.cold
	s.Tap = nil
	if n != nil {
		s.Tap = n.tap
	}
	b := &box{from: c, top: tempFile(t, "top", diskSize)}
	b.Process, b.dial = emptyShell(t, s)
	if _, err := b.Restore(t.Context(), c.image(t, b.top)); err != nil {
		t.Fatal(err)
	}
	return b
}

// rollback leaves the machine paused.
func (b *box) rollback(t *testing.T, c *checkpoint) vmmproc.Restored {
	t.Helper()
	b.top = tempFile(t, "top", diskSize)
	r, err := b.Rollback(t.Context(), c.image(t, b.top), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.from = c
	return r
}

// save writes a checkpoint; the machine goes on if resume.
func (b *box) save(t *testing.T, s vmmproc.SaveSpec) *checkpoint {
	t.Helper()
	pages, top := tempFile(t, "pages", int64(b.from.cold.MemoryBytes)), tempFile(t, "top", diskSize)
	c := *b.from
	c.state = tempFile(t, "state", 0)
	s.State, s.Memory, s.Tops = c.state, pages, []*os.File{top}
	saved, err := b.Save(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("saved %d pages, pause %v", saved.Pages, saved.Pause)
	file, err := format.Read(c.state, format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := file.Section("memory")
	if err != nil {
		t.Fatal(err)
	}
	delta, err := pageindex.Decode(raw, uint32(c.cold.MemoryBytes/guestmem.PageSize))
	if err != nil {
		t.Fatal(err)
	}
	own := pageindex.FirstOverlay + uint16(len(c.overlays))
	c.memory = pageindex.Merge(c.memory, delta.Renumber(func(source uint16) uint16 {
		if source == pageindex.FirstOverlay {
			return own
		}
		return source
	}))
	c.overlays = append(slices.Clip(c.overlays), pages)
	c.layers = append(slices.Clip(c.layers), b.top)
	b.from, b.top = &c, top
	return &c
}

// generations are numbered through all tests.
var generations atomic.Uint64

func newGeneration(wall time.Time) agentproto.Generation {
	g := agentproto.Generation{
		Number: generations.Add(1), Seed: make([]byte, agentproto.SeedSize), MachineID: make([]byte, agentproto.MachineIDSize),
		Wall: wall.UnixNano(),
	}
	g.Hostname = fmt.Sprintf("box-%d", g.Number)
	rand.Read(g.Seed)
	rand.Read(g.MachineID)
	return g
}

// awaken lets a paused machine go on, ahead of the host's clock by ahead, and
// returns a client for it.
func (b *box) awaken(t *testing.T, ahead time.Duration) (*agentclient.Client, agentproto.Generation, agentproto.GenerationResult) {
	t.Helper()
	if err := b.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The device refuses after some seconds, in which an emulated guest may not
	// even have taken the event that ends its old connections.
	c := agentclient.New(func(ctx context.Context) (net.Conn, error) {
		for {
			if nc, err := b.dial(ctx); err == nil || ctx.Err() != nil {
				return nc, err
			}
		}
	})
	t.Cleanup(func() { c.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	g := newGeneration(start.Add(ahead))
	res, err := c.SetGeneration(ctx, g)
	if err != nil {
		t.Fatal(err)
	}
	b.ack = time.Since(start)
	t.Logf("generation acknowledged after %v, %d connections were ended", b.ack, res.Destroyed)
	return c, g, res
}

// emptyShell starts a shell for machines like s, and returns what connects to
// the agent of what it becomes.
func emptyShell(t *testing.T, s vmmproc.Spec) (*vmmproc.Process, func(ctx context.Context) (net.Conn, error)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "vsock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	listener.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s.Shell, s.Memory, s.Kernel, s.Initrd, s.Cmdline = true, nil, nil, nil, ""
	s.VsockListener, s.Connect = file, func(port uint32) (*os.File, error) {
		return nil, fmt.Errorf("port %d is not registered", port)
	}
	s.Disks = []vmmproc.Disk{{ID: "vda", ReadOnly: true}, {ID: "vdb"}}
	return start(t, s), func(ctx context.Context) (net.Conn, error) { return dial(ctx, path, agentPort) }
}

// lines is what a program wrote, with a wait for a line.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // protected by mu
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) await(t *testing.T, line string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(l.String(), line+"\n"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no line %q in %q", line, l)
		}
	}
}

// launch starts one of the programs, which outlives its connection.
func launch(t *testing.T, c *agentclient.Client, name string) (id uint64, out *lines) {
	t.Helper()
	source, err := programs.ReadFile("programs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.PutFile(t.Context(), name, 0o644, int64(len(source)), bytes.NewReader(source)); err != nil {
		t.Fatal(err)
	}
	out = new(lines)
	p, err := c.Exec(t.Context(), agentproto.ExecRequest{Argv: []string{"python3", name}, Persist: true}, agentclient.ExecIO{Stdout: out, Stderr: out})
	if err != nil {
		t.Fatal(err)
	}
	return p.ExecID(), out
}

// program is one of them, taken over after a restore.
type program struct {
	*agentclient.Process
	out, errs lines
}

func attach(t *testing.T, c *agentclient.Client, id uint64) *program {
	t.Helper()
	p := new(program)
	var err error
	if p.Process, err = c.Attach(t.Context(), id, agentclient.ExecIO{Stdout: &p.out, Stderr: &p.errs}); err != nil {
		t.Fatal(err)
	}
	return p
}

// result waits for the end and reads the line that the program wrote.
func (p *program) result(t *testing.T, v any) {
	t.Helper()
	st, err := p.Wait()
	if err != nil || st.Code != 0 || st.Cause != agentproto.CauseExited {
		t.Fatalf("program ended with %+v, %v: %q, %q", st, err, &p.out, &p.errs)
	}
	if err := json.Unmarshal([]byte(p.out.String()), v); err != nil {
		t.Fatalf("program wrote %q: %v", &p.out, err)
	}
}

func freeze(t *testing.T, c *agentclient.Client) {
	t.Helper()
	if _, err := c.Freeze(t.Context(), agentproto.FreezeRequest{Wait: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
}

// each runs a test on every kernel, in the lab with the last shape alone.
func each(t *testing.T, list []shape, run func(t *testing.T, k *kernel.Kernel, s shape)) {
	if hostinfo.Detect().Kind == hostinfo.Lab {
		list = list[len(list)-1:]
	}
	for _, k := range kernels(t) {
		for _, s := range list {
			t.Run(k.Manifest.Name+"/"+s.String(), func(t *testing.T) { run(t, k, s) })
		}
	}
}
