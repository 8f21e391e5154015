package mmio_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/balloon"
	"thaw/virtio/block"
	"thaw/virtio/devicetest"
	"thaw/virtio/mmio"
	"thaw/virtio/net"
	"thaw/virtio/queue"
	"thaw/virtio/rng"
	"thaw/virtio/vsock"
)

// machine has the devices of a usual machine.
type machine struct {
	b          testing.TB
	mem        *guestmem.Memory
	host       *vsock.Host
	layers     [2][]*os.File
	wire       *os.File
	kicks      [][]*virtio.Kick
	pages      [][]byte
	devices    []virtio.Device
	transports []*mmio.Transport
}

func newMachine(b testing.TB) *machine {
	mem, err := guestmem.New(64 << 20)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { mem.Unmap() })
	m := &machine{b: b, mem: mem, host: vsock.NewHost(nil)}
	m.layers = [2][]*os.File{{file(b, 1<<30)}, {file(b, 1<<30), file(b, 0)}}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	m.wire = os.NewFile(uintptr(pair[0]), "wire")
	b.Cleanup(func() { m.wire.Close(); unix.Close(pair[1]) })
	return m
}

func file(b testing.TB, size int64) *os.File {
	fd, err := unix.MemfdCreate("layer", unix.MFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "layer")
	b.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		b.Fatal(err)
	}
	return f
}

// made fails the benchmark, or returns the device.
func made[D virtio.Device](b testing.TB) func(D, error) virtio.Device {
	return func(d D, err error) virtio.Device {
		if err != nil {
			b.Fatal(err)
		}
		return d
	}
}

// states is what is saved of the devices.
type states struct {
	disks   [2]block.State
	net     net.State
	vsock   vsock.State
	rng     rng.State
	balloon balloon.State
	windows []mmio.State
}

var (
	netOptions = net.Options{MAC: [6]byte{2, 0, 0, 0, 0, 1}}
	rngOptions = rng.Options{Rate: rng.DefaultRate}
)

// boot makes the devices as new, and then has them running on empty queues.
func (m *machine) boot() states {
	b := m.b
	m.devices = []virtio.Device{
		made[*block.Device](b)(block.New(block.Options{ID: "vda", Layers: m.layers[0], ReadOnly: true})),
		made[*block.Device](b)(block.New(block.Options{ID: "vdb", Layers: m.layers[1]})),
		made[*net.Device](b)(net.New(m.wire, netOptions)),
		made[*vsock.Device](b)(vsock.New(vsock.Options{CID: 3, Host: m.host})),
		made[*rng.Device](b)(rng.New(rngOptions)),
		made[*balloon.Device](b)(balloon.New(balloon.Options{MemoryBytes: m.mem.Size(), Reclaimer: m.mem})),
	}
	at := uint64(1 << 20)
	s := m.save(false)
	for i, d := range m.devices {
		var kicks []*virtio.Kick
		acked := d.Features() | virtio.FeatureVersion1 | virtio.FeatureEventIndex
		w := mmio.State{DeviceID: uint32(d.ID()), Status: 15, Acked: acked, InterruptStatus: 1}
		for _, size := range d.QueueSizes() {
			k, err := virtio.NewKick()
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { k.Close() })
			kicks = append(kicks, k)
			w.Queues = append(w.Queues, queueState(size, at))
			at += 64 << 10
		}
		m.kicks, m.pages = append(m.kicks, kicks), append(m.pages, make([]byte, mmio.Size))
		s.windows[i] = w
	}
	m.restore(s)
	m.each((*mmio.Transport).Resume)
	return m.save(true)
}

// queueState is that of an empty queue at an address.
func queueState(size uint16, at uint64) mmio.QueueState {
	desc, avail, used := at, at+16<<10, at+32<<10
	return mmio.QueueState{
		Size: uint32(size), Ready: true, Desc: desc, Avail: avail, Used: used,
		Ring: &queue.State{Size: size, Desc: desc, Avail: avail, Used: used, EventIndex: true},
	}
}

// save returns the states of the devices, and of their windows.
func (m *machine) save(windows bool) states {
	s := states{
		net:   m.devices[2].(*net.Device).State(),
		vsock: m.devices[3].(*vsock.Device).State(), rng: m.devices[4].(*rng.Device).State(),
		balloon: m.devices[5].(*balloon.Device).State(), windows: make([]mmio.State, len(m.devices)),
	}
	for i := range s.disks {
		s.disks[i] = m.devices[i].(*block.Device).State()
	}
	if windows {
		for i, t := range m.transports {
			s.windows[i] = t.State()
		}
	}
	return s
}

// restore replaces all devices.
func (m *machine) restore(s states) {
	b := m.b
	var previous [2]*block.Device
	for i := range previous {
		previous[i] = m.devices[i].(*block.Device)
	}
	m.devices = []virtio.Device{
		made[*block.Device](b)(block.Restore(block.Options{ID: "vda", Layers: m.layers[0], ReadOnly: true, Previous: previous[0]}, s.disks[0])),
		made[*block.Device](b)(block.Restore(block.Options{ID: "vdb", Layers: m.layers[1], Previous: previous[1]}, s.disks[1])),
		made[*net.Device](b)(net.Restore(m.wire, netOptions, s.net)),
		made[*vsock.Device](b)(vsock.Restore(vsock.Options{CID: 3, Host: m.host}, s.vsock)),
		made[*rng.Device](b)(rng.Restore(rngOptions, s.rng)),
		made[*balloon.Device](b)(balloon.Restore(balloon.Options{MemoryBytes: m.mem.Size(), Reclaimer: m.mem}, s.balloon)),
	}
	m.transports = m.transports[:0]
	for i, d := range m.devices {
		t, err := mmio.Restore(mmio.Args{
			Device: d, Memory: m.mem, Page: m.pages[i], Kicks: m.kicks[i], Raise: func() error { return nil },
		}, s.windows[i])
		if err != nil {
			b.Fatal(err)
		}
		m.transports = append(m.transports, t)
	}
}

func (m *machine) each(do func(*mmio.Transport)) {
	for _, t := range m.transports {
		do(t)
	}
}

// TestMachine saves and restores all devices at once: not a bit differs.
func TestMachine(t *testing.T) {
	m := newMachine(t)
	s := m.boot()
	m.each((*mmio.Transport).Pause)
	m.each((*mmio.Transport).Reset)
	m.restore(s)
	again := m.save(true)
	for i := range s.windows {
		if a, b := devicetest.Encode(t, s.windows[i]), devicetest.Encode(t, again.windows[i]); string(a) != string(b) {
			t.Errorf("window %d:\n%x, was\n%x", i, b, a)
		}
	}
	m.each((*mmio.Transport).Resume)
	m.each((*mmio.Transport).Reset)
}

// BenchmarkRollback is what a rollback in place spends on all devices of a
// machine, step by step.
func BenchmarkRollback(b *testing.B) {
	m := newMachine(b)
	s := m.boot()
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"pause", func() { m.each((*mmio.Transport).Pause) }},
		{"save", func() { m.save(true) }},
		{"reset", func() { m.each((*mmio.Transport).Reset) }},
		{"restore", func() { m.restore(s) }},
		{"resume", func() { m.each((*mmio.Transport).Resume) }},
	} {
		b.Run(step.name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				m.each((*mmio.Transport).Reset)
				m.restore(s)
				m.each((*mmio.Transport).Resume)
				switch step.name {
				case "save":
					m.each((*mmio.Transport).Pause)
				case "reset":
					m.each((*mmio.Transport).Pause)
				case "restore":
					m.each((*mmio.Transport).Reset)
				case "resume":
					m.each((*mmio.Transport).Reset)
					m.restore(s)
				}
				b.StartTimer()
				step.do()
			}
		})
	}
	m.each((*mmio.Transport).Reset)
}
