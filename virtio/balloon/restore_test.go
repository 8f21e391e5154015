package balloon

import (
	"context"
	"testing"
	"time"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// What the driver made available on any queue before the save is served after the
// restore, with no kick to tell of it, and not before Resume.
func TestQueuesAfterRestore(t *testing.T) {
	b := newBench(t, features)
	b.dev.Pause()
	for i, buffer := range map[int]uint64{inflate: 20 << 20, deflate: 21 << 20} {
		b.drivers[i].Add(b.numbers(i, uint32(buffer/pageSize)))
	}
	reported := b.drivers[report].Writable(2 * pageSize)
	b.drivers[report].Add(reported)
	b.drivers[stats].Add(b.drivers[stats].Readable(nil))
	s := b.dev.State()
	var queues []queue.State
	for _, q := range b.act.Queues {
		queues = append(queues, q.State())
	}
	b.dev.Reset()

	dev, err := Restore(Options{MemoryBytes: memorySize, Reclaimer: b.host}, s)
	if err != nil {
		t.Fatal(err)
	}
	b.dev, b.act.Paused = dev, true
	for i := range queues {
		ring, err := queue.Restore(b.act.Memory, queues[i])
		if err != nil {
			t.Fatal(err)
		}
		kick, err := virtio.NewKick()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kick.Close() })
		b.act.Queues[i] = virtio.Queue{Queue: ring, Kick: kick}
	}
	t.Cleanup(dev.Reset)
	if err := dev.Activate(b.act); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	for i := range b.drivers {
		if b.drivers[i].UsedIndex() != 0 {
			t.Fatalf("queue %d is served before Resume", i)
		}
	}
	dev.Resume()
	for _, i := range []int{inflate, deflate, report} {
		eventually(t, "the answer", func() bool { return b.drivers[i].UsedIndex() == 1 })
	}
	if dev.Metrics().Reclaims.Load() != 2 {
		t.Errorf("%d runs given back", dev.Metrics().Reclaims.Load())
	}
	// The statistics buffer waits for who asks.
	answered := make(chan error, 1)
	go func() { _, err := dev.Stats(context.Background()); answered <- err }()
	eventually(t, "the buffer", func() bool { return b.drivers[stats].UsedIndex() == 1 })
	b.drivers[stats].Add(b.drivers[stats].Readable(statsBuffer(uint64(Caches), 5)))
	b.kick(stats)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
