package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/vmm"
	"thaw/vmm/vmmproc"
)

// A bound and a rehearsed shell, as the pool makes them, are the template byte for byte:
// their memory is the template's file, and their processors, chips, devices and disks are
// those of a shell over which the template was laid a moment ago.
func TestRehearsedShellIsTheTemplate(t *testing.T) {
	for _, c := range []Class{small, {MemoryMiB: 512, VCPUs: 2}} {
		t.Run(c.String(), func(t *testing.T) { rehearsedIsTemplate(t, c) })
	}
}

func rehearsedIsTemplate(t *testing.T, c Class) {
	r := newRig(t, func(c *Config) { c.Pool.Bound = 1 })
	id := r.template(c)
	r.awaitShells(Bound, 1)
	r.awaitShells(Rehearsed, 1)
	h, err := r.images.get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.release()

	var states []vmm.State
	for _, kind := range []Kind{Generic, Bound, Rehearsed} {
		s := r.take(h.image, kind)
		if s.kind != kind {
			t.Fatalf("the shell is %s", s.kind)
		}
		if kind == Generic {
			if _, err := s.become(t.Context(), r.Fleet, h.image, nil); err != nil {
				t.Fatal(err)
			}
		} else if s.image == nil || s.image.id != id {
			t.Fatal("the shell is of no template")
		}
		differ, top := differing(t, s, h.image), blocks(t, s.topFile())
		state := saved(t, s, h.image)
		if also := written(state); !slices.Equal(differ, also) {
			t.Errorf("%s: pages %#x of the memory differ, want those that every restore writes: %#x", kind, differ, also)
		}
		if top != 0 {
			t.Errorf("%s: its own layer of the disk has %d blocks", kind, top)
		}
		withoutTime(&state)
		states = append(states, state)
	}
	for i, kind := range []Kind{Bound, Rehearsed} {
		if diff := cmp.Diff(states[0], states[i+1]); diff != "" {
			t.Errorf("laid over (-) and %s (+) differ:\n%s", kind, diff)
		}
	}
}

// take takes a shell, which goes with the test.
func (r *rig) take(im *image, kind Kind) *shell {
	r.t.Helper()
	s, done, err := r.takeShell(r.t.Context(), im, kind, false)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		done()
		if err := s.destroy(context.Background(), r.Fleet); err != nil {
			r.t.Error(err)
		}
	})
	return s
}

// written lists the pages that every restore writes: that of the VM generation id, and
// those to which KVM writes its clocks as soon as it is told of them.
func written(s vmm.State) (pages []int) {
	const (
		generation            = 0xff000
		wallClock, oldWall    = 0x4b56_4d00, 0x11
		systemTime, oldSystem = 0x4b56_4d01, 0x12
		enabled               = 1
	)
	pages = append(pages, generation/pageSize)
	for _, v := range s.VCPUs {
		for _, m := range v.MSRs {
			switch m.Index {
			case wallClock, oldWall:
				pages = append(pages, int(m.Value/pageSize))
			case systemTime, oldSystem:
				if m.Value&enabled != 0 {
					pages = append(pages, int(m.Value/pageSize))
				}
			}
		}
	}
	slices.Sort(pages)
	return slices.Compact(slices.DeleteFunc(pages, func(p int) bool { return p == 0 }))
}

// differing lists the pages of a shell's memory, as its process has it mapped, that
// are not those of the image's base.
func differing(t *testing.T, s *shell, im *image) (pages []int) {
	t.Helper()
	if len(im.overlays) != 0 {
		t.Fatal("the image is no template")
	}
	at := memoryAt(t, s.proc.PID(), im.base.File)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", s.proc.PID()))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	got, want := make([]byte, mib), make([]byte, mib)
	for off := int64(0); off < im.class.MemoryMiB*mib; off += mib {
		if _, err := mem.ReadAt(got, at+off); err != nil {
			t.Fatalf("read memory at %#x: %v", off, err)
		}
		clear(want) // a base ends with its data
		if _, err := im.base.ReadAt(want, off); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		for p := 0; p < mib; p += pageSize {
			if !bytes.Equal(got[p:p+pageSize], want[p:p+pageSize]) {
				pages = append(pages, int(off+int64(p))/pageSize)
			}
		}
	}
	return pages
}

// memoryAt finds where a process has guest memory: its ranges of base are mapped at
// their own offsets.
func memoryAt(t *testing.T, pid int, base *os.File) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(base.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	found, n := int64(-1), 0
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var start, end, offset, inode uint64
		var mode, device string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s %x %s %d", &start, &end, &mode, &offset, &device, &inode); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if inode != st.Ino || !strings.HasPrefix(mode, "rw-p") {
			continue
		}
		at := int64(start - offset)
		if n++; n > 1 && at != found {
			t.Fatalf("ranges of the memory at %#x and %#x", found, at)
		}
		found = at
	}
	if n == 0 {
		t.Fatal("the process has nothing of the template mapped")
	}
	return found
}

// blocks counts the blocks that a sparse file has.
func blocks(t *testing.T, f *os.File) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks
}

// saved saves a shell that stands, and returns its state.
func saved(t *testing.T, s *shell, im *image) vmm.State {
	t.Helper()
	spec := vmmproc.SaveSpec{Tracker: "full"}
	for _, f := range []struct {
		file **os.File
		size int64
	}{{&spec.State, stateSize}, {&spec.Memory, im.class.MemoryMiB * mib}} {
		file, err := layer.NewMemfd("thaw-test", f.size)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		*f.file = file
	}
	top, err := os.CreateTemp(t.TempDir(), "top")
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	if err := top.Truncate(im.diskSize); err != nil {
		t.Fatal(err)
	}
	spec.Tops = []*os.File{top}
	res, err := s.proc.Save(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	file, err := format.Read(io.NewSectionReader(spec.State, 0, res.StateBytes), format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var state vmm.State
	if err := file.CBOR("machine", &state); err != nil {
		t.Fatal(err)
	}
	return state
}

// withoutTime clears what differs between a state and the same state restored and saved
// again: what counts on. It is the list of package vmm's tests.
func withoutTime(s *vmm.State) {
	s.Instant, s.Clock = nil, vmm.ClockState{}
	for i := range s.VCPUs {
		v := &s.VCPUs[i]
		for n := range v.MSRs {
			switch v.MSRs[n].Index {
			case 0x10, // TSC
				0x6e0,      // the deadline of its timer, which moves with it
				0x40000020: // Hyper-V's reference counter
				v.MSRs[n].Value = 0
			}
		}
		binary.LittleEndian.PutUint32(v.LAPIC[0x390:], 0) // the timer's current count
	}
}
