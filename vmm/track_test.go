package vmm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/internal/kvmtest"
	"thaw/snapshot/memimage"
	"thaw/vmm/dirty"
)

// Where the guest and the devices write at random.
const (
	wildAddress = 0x300_0000
	wildPages   = 0x1000
	wildEntry   = 0x200_0000 // of the second processor's code, beyond the first's
)

// asmWild counts, and writes to pages at random, for ever. RAX is the seed.
var asmWild = join(
	[]byte{0xf0, 0x48, 0xff, 0x04, 0x25, 0x00, 0x00, 0x20, 0x00}, // lock inc qword [0x200000]
	[]byte{0x48, 0x69, 0xc0, 0x6d, 0x4e, 0xc6, 0x41},             // imul rax, rax, 0x41c64e6d
	[]byte{0x48, 0x05, 0x39, 0x30, 0x00, 0x00},                   // add rax, 12345
	[]byte{0x48, 0x89, 0xc3},                                     // mov rbx, rax
	[]byte{0x48, 0xc1, 0xeb, 0x13},                               // shr rbx, 19
	[]byte{0x48, 0x81, 0xe3, 0xff, 0x0f, 0x00, 0x00},             // and rbx, 0xfff
	[]byte{0x48, 0xc1, 0xe3, 0x0c},                               // shl rbx, 12
	[]byte{0x48, 0x89, 0x83, 0x00, 0x00, 0x00, 0x03},             // mov [rbx+0x3000000], rax
	[]byte{0xeb, 0xcf},                                           // jmp to the start
)

// trackerCase is a tracker on the kind of machine that has it.
type trackerCase struct {
	name dirty.Tracker
	ring bool
}

func (c trackerCase) String() string {
	if c.ring {
		return string(c.name) + " with rings"
	}
	return string(c.name)
}

// trackerCases are all trackers. The others copy ahead by rings where there are some.
func trackerCases(t testing.TB) []trackerCase {
	list := []trackerCase{{name: dirty.Full}, {name: dirty.Pagemap}, {name: dirty.Log}, {name: dirty.LogKept}, {name: dirty.UffdAsync}, {name: dirty.UffdSync}}
	system, err := kvm.Open(kvmtest.Device(t))
	if err != nil {
		t.Fatal(err)
	}
	if system.DirtyRingLimit() == 0 {
		t.Log("kvm has no dirty ring")
		return list
	}
	return append(list, trackerCase{dirty.Ring, true}, trackerCase{dirty.Pagemap, true})
}

// wild is a template whose processors write at random, and its shell.
func wild(t testing.TB, vcpus int) (*point, Config) {
	t.Helper()
	cfg := testConfig(t, asmWild)
	cfg.VCPUs = vcpus
	return templateOf(t, cfg, func(m *Machine) { startOthers(t, m) })
}

// startOthers has the other processors of a machine do what the first one does, with
// other seeds.
func startOthers(t testing.TB, m *Machine) {
	t.Helper()
	m.Pause()
	defer m.Resume()
	if err := m.mem.WriteAt(asmWild, wildEntry); err != nil {
		t.Fatal(err)
	}
	first, err := m.vcpus[0].kvm.Sregs()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range m.vcpus[1:] {
		s, err := c.kvm.Sregs()
		if err != nil {
			t.Fatal(err)
		}
		setFlat64(&s, first.CR3)
		s.GDT, s.IDT = first.GDT, first.IDT
		r := kvm.Regs{RIP: wildEntry, RFLAGS: 2, RAX: uint64(1000 * (i + 1))}
		if err := errors.Join(c.kvm.SetMPState(kvm.MPRunnable), c.kvm.SetSregs(s), c.kvm.SetRegs(r)); err != nil {
			t.Fatal(err)
		}
	}
}

// restoreWild restores a machine of wild's.
func restoreWild(t testing.TB, p *point, shell Config, name dirty.Tracker) *Machine {
	t.Helper()
	if name == dirty.UffdSync {
		shell.Handler = handler(t)
	}
	m := running(t, shell)
	image := p.image(t)
	image.Tracker = name
	if _, err := m.Restore(image); err != nil {
		t.Fatal(err)
	}
	return m
}

// deviceWrites writes to guest memory as devices do, and gives pages back as the
// balloon does, while the machine is not paused, until stop is called.
func deviceWrites(t testing.TB, m *Machine, seed uint64) (stop func()) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	ended, done := make(chan struct{}), sync.WaitGroup{}
	done.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Microsecond):
			}
			// Devices stand still in a pause: Pause waits for them.
			m.mu.Lock()
			if m.goal == goalRun {
				if err := deviceWrite(m, rnd); err != nil {
					t.Error(err)
				}
			}
			m.mu.Unlock()
		}
	})
	return sync.OnceFunc(func() { close(ended); done.Wait() })
}

func deviceWrite(m *Machine, rnd *rand.Rand) error {
	page := rnd.Uint64N(wildPages)
	// Where the guest writes, and where it does not.
	if rnd.IntN(2) == 0 {
		page += wildPages * 2
	}
	gpa := wildAddress + page*guestmem.PageSize
	switch rnd.IntN(6) {
	case 0:
		_, err := m.mem.Reclaim(gpa, (1+rnd.Uint64N(8))*guestmem.PageSize)
		return err
	case 1:
		return m.mem.WriteAt(make([]byte, guestmem.PageSize), gpa)
	case 2: // as devices do that fill a buffer in place
		b, err := m.mem.Slice(gpa+100, 5000)
		if err != nil {
			return err
		}
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		m.mem.MarkDirty(gpa+100, 5000)
		return nil
	}
	return m.mem.WriteAt(binary.LittleEndian.AppendUint64(nil, rnd.Uint64()), gpa+rnd.Uint64N(guestmem.PageSize))
}

// sameImage compares an image with the memory that it is of, byte for byte.
func sameImage(t testing.TB, what string, image *memimage.Image, want []byte) {
	t.Helper()
	bad := 0
	for i := 0; i < len(want); i += guestmem.PageSize {
		if !bytes.Equal(image.Page(uint32(i/guestmem.PageSize)), want[i:i+guestmem.PageSize]) {
			if bad++; bad < 4 {
				t.Errorf("%s: image differs from memory at %#x", what, i)
			}
		}
	}
	if bad > 0 {
		t.Fatalf("%s: %d pages of the image differ from memory", what, bad)
	}
}

// Each tracker's checkpoints hold what the memory held, byte for byte, whether pages
// were copied ahead or not, on one and on two processors, whoever wrote; rolling back
// to any of them, and restoring from it, brings it back.
func TestTrackersEqualFullCopy(t *testing.T) {
	for _, vcpus := range []int{1, 2} {
		p, shell := wild(t, vcpus)
		for _, c := range trackerCases(t) {
			shell := shell
			shell.DirtyRing = c.ring
			for _, ahead := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v, %d processors, ahead %v", c, vcpus, ahead), func(t *testing.T) {
					testEqualsFullCopy(t, p, shell, c.name, ahead)
				})
			}
		}
	}
}

func testEqualsFullCopy(t *testing.T, p *point, shell Config, name dirty.Tracker, ahead bool) {
	m := restoreWild(t, p, shell, name)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	stop := deviceWrites(t, m, seed)
	defer stop()
	points := []*point{p}
	for step := range 4 {
		was := counter(t, m)
		m.Resume()
		awaitCount(t, m, was+300)
		next, saved := checkpoint(t, m, points[step], SaveSpec{Tracker: name, CopyAhead: ahead})
		sameImage(t, "saved", m.image, next.memory)
		if saved.Pages == 0 || saved.Candidates < saved.Pages || saved.Pause <= 0 {
			t.Errorf("%+v", saved)
		}
		points = append(points, next)
	}
	for _, to := range points {
		m.Resume()
		awaitCount(t, m, counter(t, m)+100)
		image := to.image(t)
		image.Tracker = name
		if _, err := m.Rollback(image, nil); err != nil {
			t.Fatal(err)
		}
		same(t, "rolled back", m.mem.Host(), to.memory)
	}
	// What the rollback wrote is not missed by the next checkpoint.
	last := points[len(points)-1]
	_, saved := checkpoint(t, m, last, SaveSpec{Tracker: name})
	sameImage(t, "saved after a rollback", m.image, m.mem.Host())
	if saved.Pages > 1 {
		t.Errorf("%d pages differ after a rollback, the generation's alone should", saved.Pages)
	}
	stop()
	m = running(t, shell)
	if _, err := m.Restore(last.image(t)); err != nil {
		t.Fatal(err)
	}
	same(t, "restored", m.mem.Host(), last.memory)
}

// Trackers that know what was written since the last checkpoint look at that alone.
func TestTrackersFindWhatWasWritten(t *testing.T) {
	p, shell := wild(t, 1)
	for _, c := range trackerCases(t) {
		if c.name == dirty.Full || c.name == dirty.Pagemap || c.name == dirty.LogKept {
			continue
		}
		t.Run(c.String(), func(t *testing.T) {
			shell := shell
			shell.DirtyRing = c.ring
			m := restoreWild(t, p, shell, c.name)
			from := p
			was := counter(t, m)
			m.Resume()
			awaitCount(t, m, was+5000)
			from, saved := checkpoint(t, m, from, SaveSpec{Tracker: c.name})
			if saved.Pages < wildPages/2 {
				t.Errorf("%d pages of %d written", saved.Pages, wildPages)
			}
			// Nothing runs, and one page is written.
			if err := m.mem.WriteAt([]byte("new"), wildAddress+5*guestmem.PageSize); err != nil {
				t.Fatal(err)
			}
			_, saved = checkpoint(t, m, from, SaveSpec{Tracker: c.name})
			if saved.Pages != 1 || saved.Candidates > 16 {
				t.Errorf("one page was written: %+v", saved)
			}
		})
	}
}

// A tracker that a machine or its host does not have is refused, and no other one
// takes its place.
func TestTrackersAreRefused(t *testing.T) {
	p, shell := wild(t, 1)
	ring := shell
	ring.DirtyRing = true
	for _, c := range []struct {
		name    string
		shell   Config
		tracker dirty.Tracker
		change  func(*Image)
	}{
		{"dirty log on rings", ring, dirty.Log, nil},
		{"rings on a dirty log", shell, dirty.Ring, nil},
		{"no userfaultfd", shell, dirty.UffdAsync, func(i *Image) { i.Userfault.Close(); i.Userfault = nil }},
		{"not a userfaultfd", shell, dirty.UffdAsync, func(i *Image) { i.Userfault.Close(); i.Userfault = nullFile(t) }},
		{"no handler", shell, dirty.UffdSync, nil},
		{"no page map", shell, dirty.UffdAsync, func(i *Image) { i.Pagemap.Close(); i.Pagemap = nil }},
		{"unknown", shell, "guess", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := running(t, c.shell)
			image := p.image(t)
			image.Tracker = c.tracker
			if c.change != nil {
				c.change(&image)
			}
			if _, err := m.Restore(image); !errors.Is(err, dirty.ErrTracker) {
				t.Errorf("got %v, want %v", err, dirty.ErrTracker)
			}
		})
	}
	t.Run("not started", func(t *testing.T) {
		m := running(t, shell)
		if _, err := m.Restore(p.image(t)); err != nil {
			t.Fatal(err)
		}
		for _, ahead := range []bool{false, true} {
			spec := SaveSpec{State: emptyMemfd(t, 8<<20), Memory: emptyMemfd(t, int64(m.mem.Size())), Tracker: dirty.UffdAsync, CopyAhead: ahead}
			if _, err := m.Save(spec); !errors.Is(err, dirty.ErrTracker) {
				t.Errorf("got %v, want %v", err, dirty.ErrTracker)
			}
		}
	})
}

func nullFile(t testing.TB) *os.File {
	t.Helper()
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
