package block

import (
	"bytes"
	"os"
	"reflect"
	"runtime"
	"testing"
	"time"

	"thaw/virtio"
	"thaw/virtio/queue/queuetest"
)

// Cold reads leave the worker, come back in any order, and are all answered
// when Pause returns.
func TestPoolAndPause(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		const depth = 64
		for round := range 3 {
			dropCache(t, r.bottom)
			data := make([]queuetest.Buffer, depth)
			status := make([]queuetest.Buffer, depth)
			for i := range data {
				data[i], status[i] = r.Writable(4096), r.statusBuffer()
				if i%8 == 7 {
					r.Add(r.header(typeFlush, 0), status[i])
				} else {
					r.Add(r.header(typeIn, uint64(i*31%200*8)), data[i], status[i])
				}
			}
			r.kick.Signal()
			for r.UsedIndex() == uint16(round*depth) { // some are taken
				runtime.Gosched()
			}
			r.dev.Pause()
			answered := r.UsedIndex()
			time.Sleep(time.Millisecond)
			if r.UsedIndex() != answered {
				t.Fatal("requests were answered during the pause")
			}
			r.dev.Resume()
			for range depth {
				r.wait()
			}
			for i := range data {
				if r.Bytes(status[i])[0] != statusOK {
					t.Fatalf("request %d failed", i)
				}
				off := i * 31 % 200 * 4096
				if i%8 != 7 && !bytes.Equal(r.Bytes(data[i]), pattern(testSize)[off:off+4096]) {
					t.Fatalf("request %d read other bytes", i)
				}
			}
		}
	})
}

// A driver that never stops cannot hold up a pause, and one that offers a
// chain more often than the queue is long breaks only itself.
func TestEndlessDriver(t *testing.T) {
	r := newRig(t, newDeviceOn(t, Options{Layers: []*os.File{diskFile(t, t.TempDir(), testSize)}}))
	head := r.Add(r.header(typeFlush, 0), r.statusBuffer())
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if r.AvailIndex()-r.UsedIndex() < queueSize {
				r.Offer(head)
				r.kick.Signal()
			}
		}
	}()
	for range 20 {
		time.Sleep(time.Millisecond)
		r.dev.Pause()
		r.dev.Resume()
	}
	close(stop)
	<-done
	select {
	case err := <-r.irq.broken:
		t.Fatal(err)
	default:
	}
}

func TestResetAndReuse(t *testing.T) {
	r := newRig(t, newDeviceOn(t, Options{Layers: []*os.File{diskFile(t, t.TempDir(), testSize)}}))
	if status := r.write(0, make([]byte, 512)); status != statusOK {
		t.Fatalf("status %d", status)
	}
	r.dev.Reset()
	r.dev.Pause()
	r.dev.Resume()
	again := newRig(t, r.dev)
	if got, status := again.read(0, 512); status != statusOK || !bytes.Equal(got, make([]byte, 512)) {
		t.Fatalf("read after reset: status %d", status)
	}
}

func TestActivateWithoutQueue(t *testing.T) {
	dev := newDeviceOn(t, Options{Layers: []*os.File{diskFile(t, t.TempDir(), 512)}})
	if err := dev.Activate(virtio.Activation{Queues: []virtio.Queue{{}}}); err == nil {
		t.Fatal("activated on a queue that is not there")
	}
}

func TestFreezeAndDrop(t *testing.T) {
	dir := t.TempDir()
	bottom := diskFile(t, dir, testSize)
	r := newRig(t, newDeviceOn(t, Options{Layers: []*os.File{bottom}}))
	r.write(0, bytes.Repeat([]byte{1}, 4096))
	r.dev.Pause()
	if err := r.dev.Freeze(diskFile(t, dir, 0)); err != nil {
		t.Fatal(err)
	}
	r.dev.Resume()
	frozen := content(t, bottom)
	r.write(0, bytes.Repeat([]byte{2}, 4096))
	if got, _ := r.read(0, 4096); got[0] != 2 {
		t.Fatal("the new top is not read")
	}
	if !bytes.Equal(content(t, bottom), frozen) {
		t.Fatal("a frozen layer changed")
	}
	r.dev.Pause()
	if r.dev.Written() != 1 {
		t.Fatalf("%d blocks in the new top", r.dev.Written())
	}
	if err := r.dev.Drop(); err != nil {
		t.Fatal(err)
	}
	r.dev.Resume()
	if got, _ := r.read(0, 4096); got[0] != 1 {
		t.Fatal("the drop did not take")
	}
}

// A checkpoint switches layers; a rollback to it, with a new top or the old one,
// reads what there was then, on the index of the device before or a new one.
func TestRollback(t *testing.T) {
	dir := t.TempDir()
	options := Options{ID: "vdb", Layers: []*os.File{diskFile(t, dir, testSize), diskFile(t, dir, 0)}}
	r := newRig(t, newDeviceOn(t, options))
	r.write(0, bytes.Repeat([]byte{1}, 8192))
	r.dev.Pause()
	top := diskFile(t, dir, 0)
	if err := r.dev.Freeze(top); err != nil {
		t.Fatal(err)
	}
	saved := r.dev.State()
	if saved.Disk.Layers != 3 || saved.Disk.Top.Len() != 0 {
		t.Fatalf("state after a freeze: %+v", saved.Disk)
	}
	r.dev.Resume()
	want, _ := r.read(0, 16384)
	for name, c := range map[string]struct {
		top      *os.File
		previous bool
	}{
		"taken over":              {top, true},
		"taken over with new top": {diskFile(t, dir, 0), true},
		"anew":                    {diskFile(t, dir, 0), false},
	} {
		r.write(8, bytes.Repeat([]byte{2}, 8192))
		r.dev.Pause()
		r.dev.Reset()
		options := options
		options.Layers = append(options.Layers[:2:2], c.top)
		if c.previous {
			options.Previous = r.dev
		}
		dev, err := Restore(options, saved)
		if err != nil {
			t.Fatal(err)
		}
		if again := dev.State(); !reflect.DeepEqual(again, saved) {
			t.Errorf("%s: state %+v, was %+v", name, again, saved)
		}
		r = newRig(t, dev)
		if got, status := r.read(0, 16384); status != statusOK || !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes than at the checkpoint, status %d", name, status)
		}
	}
}
