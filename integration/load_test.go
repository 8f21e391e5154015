package integration

import (
	"bytes"
	"crypto/sha3"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentclient"
	"thaw/internal/hostinfo"
	"thaw/kernel"
	"thaw/snapshot/format"
	"thaw/virtio/block/disk"
	"thaw/vmm"
	"thaw/vmm/vmmproc"
)

// TestSaveUnderLoad saves a machine that writes to its disk and its network as
// fast as it can, not frozen, so that requests of every kind are under way. Then
// everything is as it should be in a machine restored from that, in the one that
// went on, and in the same one rolled back.
func TestSaveUnderLoad(t *testing.T) {
	each(t, []shape{{1, 512}, {2, 3072}}, func(t *testing.T, k *kernel.Kernel, s shape) {
		c := template(t, k, s, networked(newNamespace(t)))
		first := newNamespace(t)
		firstHost := serveStreams(t, first)
		b := restore(t, c, first)
		client, _, _ := b.awaken(t, 0)
		id, out := launch(t, client, "load.py")
		out.await(t, "up")
		firstHost.await(t)
		one := b.save(t, vmmproc.SaveSpec{Resume: true})
		firstHost.await(t)
		two := b.save(t, vmmproc.SaveSpec{Resume: true, CopyAhead: true})
		firstHost.await(t)
		stop(t, client, id, firstHost, false)

		restored := []*checkpoint{one, two}
		if hostinfo.Detect().Kind == hostinfo.Lab {
			restored = restored[1:] // a minute each
		}
		for _, saved := range restored {
			n := newNamespace(t)
			host := serveStreams(t, n)
			other := restore(t, saved, n)
			client, _, _ := other.awaken(t, 0)
			host.await(t)
			stop(t, client, id, host, true)
			other.powerOff(t, client)
			checkFileSystem(t, other)
		}
		// Back twice, the second time while the load is on.
		for _, saved := range []*checkpoint{one, two} {
			b.rollback(t, saved)
			client, _, _ = b.awaken(t, 0)
			firstHost.await(t)
		}
		stop(t, client, id, firstHost, true)
		b.powerOff(t, client)
		checkFileSystem(t, b)
	})
}

// powerOff has the guest end in order, with its disk written and unmounted.
func (b *box) powerOff(t *testing.T, c *agentclient.Client) {
	t.Helper()
	if err := c.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if exit := wait(t, b.Process, 2*time.Minute); exit.Reason != vmmproc.Poweroff {
		t.Errorf("machine ended: %s", exit)
	}
}

// stop ends load.py and looks at what it found. Its streams broke if the machine
// was restored: the host that it then speaks to knows nothing of them, and they end
// with the new generation at the latest.
func stop(t *testing.T, c *agentclient.Client, id uint64, host *streams, restored bool) {
	t.Helper()
	if err := c.PutFile(t.Context(), "stop", 0o644, 0, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	var r struct {
		Problems []string
		Written  []int64 // blocks of each file
		Streams  map[string]struct {
			Connections int64
			Blocks      int64 // of the last connection
			Errors      []string
		}
	}
	attach(t, c, id).result(t, &r)
	if len(r.Problems) > 0 {
		t.Errorf("guest found: %v", r.Problems)
	}
	for i, n := range r.Written {
		if n == 0 {
			t.Errorf("nothing was written to file %d", i)
		}
	}
	for name, s := range r.Streams {
		// In the lab all that was sent may be under way.
		idle := s.Blocks == 0 && (name == "up" || hostinfo.Detect().Kind != hostinfo.Lab)
		if idle || restored && s.Connections < 2 || !restored && s.Connections != 1 {
			t.Errorf("stream %s: %+v, restored %v", name, s, restored)
		}
		for _, e := range s.Errors {
			if e != "ECONNABORTED" && e != "EPIPE" && e != "ECONNRESET" {
				t.Errorf("stream %s: error %s", name, e)
			}
		}
	}
	if problems := host.take(); len(problems) > 0 {
		t.Errorf("host found: %v", problems)
	}
}

// streams is the host's end of the streams of load.py.
type streams struct {
	mu             sync.Mutex
	received, sent int64    // blocks; protected by mu
	problems       []string // protected by mu
}

const (
	streamUp, streamDown = 3, 4
	streamBlock          = 64 << 10
)

func serveStreams(t *testing.T, n *namespace) *streams {
	s := new(streams)
	n.serve(t, streamUp, s.receive)
	n.serve(t, streamDown, func(c net.Conn) {
		defer c.Close()
		for number := 0; ; number++ {
			if _, err := c.Write(blockOf(streamDown, number)); err != nil {
				return
			}
			s.mu.Lock()
			s.sent++
			s.mu.Unlock()
		}
	})
	return s
}

func blockOf(stream, number int) []byte {
	return sha3.SumSHAKE128(fmt.Appendf(nil, "%d:%d", stream, number), streamBlock)
}

// receive compares all that comes. A connection may end anywhere: that of a
// machine that is restored elsewhere does.
func (s *streams) receive(c net.Conn) {
	defer c.Close()
	got := make([]byte, streamBlock)
	for number := 0; ; number++ {
		n, err := io.ReadFull(c, got)
		if !bytes.Equal(got[:n], blockOf(streamUp, number)[:n]) {
			s.mu.Lock()
			s.problems = append(s.problems, fmt.Sprintf("block %d is another", number))
			s.mu.Unlock()
			return
		}
		if err != nil {
			return
		}
		s.mu.Lock()
		s.received++
		s.mu.Unlock()
	}
}

func (s *streams) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems
}

// await waits until streams have moved some more blocks in both directions: of
// those that were sent, more than can be under way.
func (s *streams) await(t *testing.T) {
	t.Helper()
	more, underWay := int64(64), int64(256)
	if hostinfo.Detect().Kind == hostinfo.Lab {
		more, underWay = 8, 64
	}
	now := func() (received, sent int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.received, s.sent
	}
	received, sent := now()
	// An emulated guest is slow; one whose network stands still is broken.
	moved := time.Now()
	for lastReceived, lastSent := received, sent; ; time.Sleep(5 * time.Millisecond) {
		r, n := now()
		if r >= received+more && n >= sent+more+underWay {
			return
		}
		if r > lastReceived && n > lastSent {
			lastReceived, lastSent, moved = r, n, time.Now()
		}
		if time.Since(moved) > time.Minute {
			t.Fatalf("streams stand still: %d blocks came, then %d; %d were sent, then %d",
				lastReceived-received, r-lastReceived, lastSent-sent, n-lastSent)
		}
	}
}

// checkFileSystem has e2fsck look at the writable disk of a machine that was
// switched off.
func checkFileSystem(t *testing.T, b *box) {
	t.Helper()
	tool, err := exec.LookPath("e2fsck")
	if err != nil {
		t.Log("file system was not checked: no e2fsck")
		return
	}
	path := filepath.Join(t.TempDir(), "disk")
	flat, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer flat.Close()
	defer os.Remove(path)
	if err := flatten(flat, b.from.disk(t)); err != nil {
		t.Fatal(err)
	}
	// What was written since the checkpoint. Its holes were never written: the
	// guest asks for no zeros and gives nothing back.
	if err := copyData(flat, b.top); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "-f", "-n", path).CombinedOutput(); err != nil {
		t.Errorf("e2fsck: %v\n%s", err, out)
	}
}

// disk opens the writable disk as it was saved.
func (c *checkpoint) disk(t *testing.T) *disk.Disk {
	t.Helper()
	file, err := format.Read(c.state, format.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	var state vmm.State
	if err := file.CBOR("machine", &state); err != nil {
		t.Fatal(err)
	}
	for _, d := range state.Devices {
		if d.Block == nil || d.Block.ID != "vdb" {
			continue
		}
		layers := append(c.layers[:len(c.layers):len(c.layers)], tempFile(t, "top", diskSize))
		opened, err := disk.Restore(layers, false, d.Block.Disk)
		if err != nil {
			t.Fatal(err)
		}
		return opened
	}
	t.Fatal("machine has no disk vdb")
	return nil
}

// copyData copies the parts of a file that are no holes.
func copyData(to, from *os.File) error {
	for off := int64(0); ; {
		start, err := unix.Seek(int(from.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		if off, err = unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, start), io.NewSectionReader(from, start, off-start)); err != nil {
			return err
		}
	}
}

// flatten writes a disk to a file, holes for zeros.
func flatten(to *os.File, d *disk.Disk) error {
	if err := to.Truncate(d.Size()); err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	zeros := make([]byte, len(b))
	for off := int64(0); off < d.Size(); off += int64(len(b)) {
		part := b[:min(int64(len(b)), d.Size()-off)]
		var v disk.Vector
		v.Add(part)
		if err := d.Read(&v, off); err != nil {
			return err
		}
		if bytes.Equal(part, zeros[:len(part)]) {
			continue
		}
		if _, err := to.WriteAt(part, off); err != nil {
			return err
		}
	}
	return nil
}
