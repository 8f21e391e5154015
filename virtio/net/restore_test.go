package net

import (
	"testing"
	"time"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// restore replaces the device by what is saved of it, paused, with new kicks.
func (b *bench) restore(change func(*State)) {
	b.t.Helper()
	b.dev.Pause()
	s := b.dev.State()
	if change != nil {
		change(&s)
	}
	var states []queue.State
	for _, q := range b.act.Queues {
		states = append(states, q.State())
	}
	b.dev.Reset()
	dev, err := Restore(b.near, testOptions, s)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range states {
		q, err := queue.Restore(b.act.Memory, states[i])
		if err != nil {
			b.t.Fatal(err)
		}
		b.act.Queues[i] = virtio.Queue{Queue: q, Kick: newKick(b.t)}
	}
	b.dev, b.act.Paused = dev, true
	b.start()
	if dev.State() != s {
		b.t.Errorf("state %+v, want %+v", dev.State(), s)
	}
}

// A restored device goes on with the buffers and frames of before, but for what
// waits in the tap: that was meant for the machine before it.
func TestRestore(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	b.dev.Pause()
	posts := b.post(2, 2000) // made available and not served before the save
	b.tx.Add(b.tx.Readable(append(plain[:12:12], frame(300)...)))
	for range 5 {
		b.put(append(plain[:12:12], frame(700)...))
	}
	b.restore(nil)
	time.Sleep(20 * time.Millisecond)
	if b.rx.UsedIndex() != 0 || b.tx.UsedIndex() != 0 {
		t.Fatal("it works before Resume")
	}
	b.dev.Resume()
	eventually(t, "old frames dropped", func() bool { return b.dev.Metrics().Receive.Stale.Load() == 5 })
	eventually(t, "frame sent", func() bool { return b.tx.UsedIndex() == 1 })
	b.put(append(plain[:12:12], frame(800)...))
	got, _ := b.collect(posts)
	wantFrame(t, got, frame(800))

	// The next pause drops nothing.
	b.dev.Pause()
	b.put(append(plain[:12:12], frame(900)...))
	b.dev.Resume()
	got, _ = b.collect(posts[1:])
	wantFrame(t, got, frame(900))
}

// A driver that had lost its link is told that it is up again.
func TestRestoreBringsTheLinkBack(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	b.restore(func(s *State) { s.LinkDown = true })
	if b.dev.Config()[configStatus] != 0 {
		t.Fatal("link is up before the driver was told")
	}
	b.dev.Resume()
	eventually(t, "link", func() bool { return b.dev.Config()[configStatus] == statusLinkUp })
	eventually(t, "configuration change", func() bool { return b.irq.config.Load() == 1 })
}
