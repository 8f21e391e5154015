package vmm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/internal/kvmtest"
	"thaw/internal/pagemap"
	"thaw/internal/uffd"
	"thaw/snapshot/memimage"
	"thaw/snapshot/pageindex"
	"thaw/virtio"
)

// Where the guest counts, and the pages that it writes the count to, one after
// the other.
const (
	counterAddress = 0x20_0000
	tableAddress   = 0x40_0000
	tablePages     = 0x400
)

// asmCount counts for ever.
var asmCount = join(
	[]byte{0x48, 0xff, 0x04, 0x25, 0x00, 0x00, 0x20, 0x00}, // inc qword [0x200000]
	[]byte{0x48, 0x8b, 0x04, 0x25, 0x00, 0x00, 0x20, 0x00}, // mov rax, [0x200000]
	[]byte{0x48, 0x89, 0xc3},                               // mov rbx, rax
	[]byte{0x48, 0x81, 0xe3, 0xff, 0x03, 0x00, 0x00},       // and rbx, 0x3ff
	[]byte{0x48, 0xc1, 0xe3, 0x0c},                         // shl rbx, 12
	[]byte{0x48, 0x89, 0x83, 0x00, 0x00, 0x40, 0x00},       // mov [rbx+0x400000], rax
	[]byte{0xeb, 0xda},                                     // jmp to the start
)

func emptyMemfd(t testing.TB, size int64) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("snapshot", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "snapshot")
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return f
}

// again returns a descriptor for somebody who closes it.
func again(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

func pagemapFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// userfaultFile is nil where there is none: then the trackers say so.
func userfaultFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(uffd.Device, os.O_RDWR, 0)
	if err != nil {
		t.Log(err)
		return nil
	}
	return f
}

// point is a saved instant: files to restore from, and the memory as it was.
type point struct {
	state    *os.File
	plan     memimage.Plan
	base     *os.File
	overlays []*os.File
	memory   []byte
}

func (p *point) image(t testing.TB) Image {
	i := Image{State: again(t, p.state), Plan: p.plan, Base: again(t, p.base), Pagemap: pagemapFile(t), Userfault: userfaultFile(t)}
	for _, f := range p.overlays {
		i.Overlays = append(i.Overlays, again(t, f))
	}
	return i
}

// running is a machine that runs until the test ends.
func running(t testing.TB, cfg Config) *Machine {
	t.Helper()
	m := newMachine(t, cfg)
	done := make(chan Exit, 1)
	go func() { done <- m.Run(context.Background()) }()
	t.Cleanup(func() {
		m.Stop()
		select {
		case e := <-done:
			if e.Reason != Stopped {
				t.Errorf("machine ended: %s %s", e.Reason, e.Detail)
			}
		case <-time.After(20 * time.Second):
			t.Error("machine does not end")
		}
	})
	return m
}

func counter(t testing.TB, m *Machine) uint64 {
	t.Helper()
	var b [8]byte
	if err := m.mem.ReadAt(b[:], counterAddress); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint64(b[:])
}

// awaitCount waits until the guest has counted beyond n.
func awaitCount(t testing.TB, m *Machine, n uint64) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); counter(t, m) <= n; {
		if time.Now().After(end) {
			t.Fatalf("guest has not counted beyond %d, console %q", n, m.Console())
		}
		time.Sleep(time.Millisecond)
	}
}

// template boots a machine that counts and saves it.
func template(t *testing.T) (*point, Config) {
	t.Helper()
	return templateOf(t, testConfig(t, asmCount), func(*Machine) {})
}

// templateOf saves a machine to which begin has been done.
func templateOf(t testing.TB, cfg Config, begin func(*Machine)) (*point, Config) {
	t.Helper()
	m := running(t, cfg)
	begin(m)
	awaitCount(t, m, 100)
	p := &point{state: emptyMemfd(t, 8<<20), base: cfg.Memory}
	saved, err := m.Save(SaveSpec{State: again(t, p.state)})
	if err != nil || saved.StateBytes == 0 {
		t.Fatalf("%+v, %v", saved, err)
	}
	p.memory = bytes.Clone(m.mem.Host())
	index, err := pageindex.FromHoles(cfg.Memory, int64(cfg.MemoryBytes))
	if err != nil {
		t.Fatal(err)
	}
	p.plan = memimage.Plan{Base: index, Memory: index, Hot: &pageindex.Index{Pages: index.Pages}}
	return p, Config{Shell: true, VCPUs: cfg.VCPUs, MemoryBytes: cfg.MemoryBytes, KVM: kvmtest.Device(t)}
}

// same compares memories but for the generation's page.
func same(t testing.TB, what string, got, want []byte) {
	t.Helper()
	for i := 0; i < len(want); i += guestmem.PageSize {
		if i/guestmem.PageSize == generationAddress/guestmem.PageSize {
			continue
		}
		if !bytes.Equal(got[i:i+guestmem.PageSize], want[i:i+guestmem.PageSize]) {
			t.Fatalf("%s: memory differs at %#x", what, i)
		}
	}
}

// checkpoint saves m, which stays paused, and checks the files against its memory.
func checkpoint(t testing.TB, m *Machine, from *point, s SaveSpec) (*point, Saved) {
	t.Helper()
	p := &point{state: emptyMemfd(t, 8<<20), base: from.base, overlays: from.overlays}
	memory := emptyMemfd(t, int64(m.mem.Size()))
	s.State, s.Memory = again(t, p.state), again(t, memory)
	saved, err := m.Save(s)
	if err != nil {
		t.Fatal(err)
	}
	p.overlays = append(p.overlays[:len(p.overlays):len(p.overlays)], memory)
	p.plan = memimage.Plan{Base: from.plan.Base, Memory: m.image.Index(), Hot: from.plan.Hot}
	p.memory = bytes.Clone(m.mem.Host())
	return p, saved
}

// A restored machine goes on where it was saved, in another process's memory, and
// the one that was saved goes on too.
func TestRestoreGoesOn(t *testing.T) {
	p, shell := template(t)
	for range 2 {
		m := running(t, shell)
		m.Resume() // of a shell: nothing
		if _, err := m.Restore(p.image(t)); err != nil {
			t.Fatal(err)
		}
		same(t, "restored", m.mem.Host(), p.memory)
		was := counter(t, m)
		m.Resume()
		awaitCount(t, m, was+100)
		if _, err := m.Restore(p.image(t)); !errors.Is(err, ErrShell) {
			t.Errorf("second restore: %v", err)
		}
	}
	if got := binary.LittleEndian.Uint64(p.memory[counterAddress:]); got < 100 {
		t.Errorf("template counted to %d", got)
	}
}

// Restored and saved at once, without having run, a machine gives the same state
// but for what time changes.
func TestStateSurvivesARestore(t *testing.T) {
	p, shell := template(t)
	m := running(t, shell)
	if _, err := m.Restore(p.image(t)); err != nil {
		t.Fatal(err)
	}
	next, saved := checkpoint(t, m, p, SaveSpec{})
	if saved.Pages > 1 {
		t.Errorf("%d pages differ, the generation's alone should", saved.Pages)
	}
	first, _, err := m.readState(p.state)
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := m.readState(next.state)
	if err != nil {
		t.Fatal(err)
	}
	if diff := stateDiff(first, second); diff != "" {
		t.Error(diff)
	}
}

// A recording has the pages that the machine made its own.
func TestRecordedPagesArePopulated(t *testing.T) {
	p, shell := template(t)
	m := running(t, shell)
	if _, err := m.Restore(p.image(t)); err != nil {
		t.Fatal(err)
	}
	was := counter(t, m)
	m.Resume()
	awaitCount(t, m, was+2000)
	record := emptyMemfd(t, 0)
	if _, err := m.Rollback(p.image(t), again(t, record)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(record, 0, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	hot, err := pageindex.Decode(b, p.plan.Base.Pages)
	if err != nil {
		t.Fatal(err)
	}
	if n := hot.Count(func(uint16) bool { return true }); n < tablePages/2 {
		t.Errorf("%d pages recorded", n)
	}
	p.plan.Hot = hot
	m = running(t, shell)
	if _, err := m.Restore(p.image(t)); err != nil {
		t.Fatal(err)
	}
	m.ahead.Wait()
	same(t, "restored with recording", m.mem.Host(), p.memory)
	private, err := m.track.Private()
	if err != nil {
		t.Fatal(err)
	}
	if n := pagemap.Pages(private); n < tablePages/2 {
		t.Errorf("%d pages were made ahead", n)
	}
}

func TestBadImages(t *testing.T) {
	p, shell := template(t)
	for _, c := range []struct {
		name   string
		change func(*Image)
	}{
		{"state is empty", func(i *Image) { i.State = emptyMemfd(t, 0) }},
		{"state is zeros", func(i *Image) { i.State = emptyMemfd(t, 8<<20) }},
		{"a disk too many", func(i *Image) { i.Disks = []Disk{{Layers: []*os.File{emptyMemfd(t, 4096)}}} }},
		{"base is short", func(i *Image) { i.Base = emptyMemfd(t, 4096) }},
		{"base is missing", func(i *Image) { i.Base = nil }},
		{"tracker is unknown", func(i *Image) { i.Tracker = "guess" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := running(t, shell)
			i := p.image(t)
			c.change(&i)
			if _, err := m.Restore(i); err == nil {
				t.Error("it was restored")
			}
		})
	}
	t.Run("another shape", func(t *testing.T) {
		cfg := shell
		cfg.VCPUs = 2
		m := running(t, cfg)
		if _, err := m.Restore(p.image(t)); !errors.Is(err, virtio.ErrState) {
			t.Errorf("got %v", err)
		}
	})
}

// stateDiff compares saved states outside of what time changes.
func stateDiff(a, b *State) string {
	for _, s := range []*State{a, b} {
		m := machineState{s.VCPUs, s.Chips, s.Clock}
		for _, e := range excluded {
			e.clear(&m)
		}
		s.Chips, s.Clock, s.Instant = m.chips, m.clock, nil // another instant
	}
	return cmp.Diff(a, b)
}
