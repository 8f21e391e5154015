package net

import (
	"testing"
	"time"

	"thaw/virtio"
	"thaw/virtio/queue/queuetest"
)

// A driver that offers more chains than its ring has, each no larger than a
// header, must not keep the pump looking for ever more of them.
func TestMoreChainsThanTheRingHas(t *testing.T) {
	const ring = 16
	w := newWire(t)
	dev, err := New(w.near, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	mem := queuetest.Memory(t, 2<<20)
	b := &bench{
		wire: w, t: t, dev: dev, irq: newInterrupts(),
		rx: queuetest.New(t, mem, 0x1000, 1<<20, ring), tx: queuetest.New(t, mem, 1<<20+0x1000, 1<<18, ring),
	}
	b.act = virtio.Activation{Memory: mem, Features: dev.Features(), Interrupt: b.irq, Queues: []virtio.Queue{
		{Queue: b.rx.Queue(), Kick: newKick(t)}, {Queue: b.tx.Queue(), Kick: newKick(t)}}}
	b.start()
	for range queueSize/ring + 1 {
		b.post(ring, headerSize)
		time.Sleep(2 * time.Millisecond) // the device takes them
	}
	b.put(append(plain[:12:12], frame(5000)...))
	eventually(t, "the frame to be dropped", func() bool { return dev.Metrics().Counters().ReceiveOversize == 1 })
	before := dev.Metrics().Counters().ReceiveStarved
	time.Sleep(20 * time.Millisecond)
	if n := dev.Metrics().Counters().ReceiveStarved - before; n > 2 {
		t.Errorf("the pump looked for buffers %d times in 20 ms", n)
	}
}
