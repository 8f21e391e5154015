// Package balloon is the virtio memory balloon (virtio 1.3 §5.5): how a guest
// gives memory back to the host, because it was asked to (inflate) or because
// the memory is free anyway (free page reporting), and says how much it uses.
//
//	inflate ───▶ pages ─┐
//	                    ├─▶ checked, joined to runs ─▶ Reclaimer ─▶ host
//	reporting ─▶ ranges ┘
//	deflate ───▶ counted: a page comes back when it is touched
//	statistics ▶ Stats
//
// Everything from the guest is hostile. What it names is checked to be RAM of
// its own; giving back pages that it still needs harms nobody else.
package balloon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"thaw/virtio"
)

// queueSize is the size of each queue, in entries. Linux wants 32 at least
// for reporting.
const queueSize = 128

// ErrNoStats is returned by Stats when the guest has no driver that gives
// statistics.
var ErrNoStats = errors.New("guest gives no memory statistics")

// Options is what the host chooses for a device.
type Options struct {
	// MemoryBytes is the guest's RAM: no target is above it.
	MemoryBytes uint64
	// Reclaimer takes the memory back.
	Reclaimer Reclaimer
}

// Device is a balloon. SetTarget, Target, Actual and Stats may be called from
// any goroutine.
type Device struct {
	options Options
	metrics Metrics
	workers []*virtio.Worker // while active

	mu        sync.Mutex
	config    config           // protected by mu
	interrupt virtio.Interrupt // protected by mu; nil when inactive
	stats     *statsSource     // protected by mu; nil when there is none
}

var _ virtio.Device = (*Device)(nil)

// statsSource is a statistics queue while the device is active.
type statsSource struct {
	handler *statistician
	kick    *virtio.Kick
	ended   chan struct{} // closed by Reset
}

// New returns an inactive, empty balloon.
func New(options Options) (*Device, error) {
	if options.Reclaimer == nil || options.MemoryBytes/pageSize > math.MaxUint32 {
		return nil, fmt.Errorf("balloon: make device: no reclaimer, or %d bytes of memory", options.MemoryBytes)
	}
	return &Device{options: options}, nil
}

// ID implements virtio.Device.
func (d *Device) ID() virtio.DeviceID { return virtio.BalloonID }

// Features implements virtio.Device.
func (d *Device) Features() uint64 { return features }

// QueueSizes implements virtio.Device.
func (d *Device) QueueSizes() []uint16 { return []uint16{queueSize, queueSize, queueSize, queueSize} }

// Metrics returns the device's counters.
func (d *Device) Metrics() *Metrics { return &d.metrics }

// Config implements virtio.Device.
func (d *Device) Config() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.config
	return c[:]
}

// WriteConfig implements virtio.Device: it takes the driver's word for how many
// pages it gave.
func (d *Device) WriteConfig(offset uint32, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config.write(offset, p)
}

// SetTarget asks the guest to have that many MiB in the balloon; it follows
// as well as it can.
func (d *Device) SetTarget(mib uint64) error {
	if mib > d.options.MemoryBytes>>20 {
		return fmt.Errorf("balloon: set target of %d MiB: guest has %d", mib, d.options.MemoryBytes>>20)
	}
	d.mu.Lock()
	d.config.setTarget(uint32(mib * pagesPerMiB))
	interrupt := d.interrupt
	d.mu.Unlock()
	if interrupt != nil {
		interrupt.ConfigChanged() // reads Config: not under mu
	}
	return nil
}

// Target is what was asked of the guest, in MiB.
func (d *Device) Target() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return uint64(d.config.target() / pagesPerMiB)
}

// Actual is what the guest says is in the balloon, in bytes, at most all of
// its memory.
func (d *Device) Actual() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(uint64(d.config.actual())*pageSize, d.options.MemoryBytes)
}

// Stats asks the driver for memory statistics and waits for them. The guest
// may never answer: ctx bounds the wait. Several callers share one answer.
func (d *Device) Stats(ctx context.Context) (Stats, error) {
	d.mu.Lock()
	source := d.stats
	d.mu.Unlock()
	if source == nil {
		return Stats{}, fmt.Errorf("balloon: %w", ErrNoStats)
	}
	fresh := source.handler.ask()
	if err := source.kick.Signal(); err != nil {
		return Stats{}, fmt.Errorf("balloon: wake statistics worker: %w", err)
	}
	select {
	case <-fresh:
		return source.handler.answered(), nil
	case <-source.ended:
		return Stats{}, fmt.Errorf("balloon: device was reset: %w", ErrNoStats)
	case <-ctx.Done():
		return Stats{}, fmt.Errorf("balloon: wait for statistics: %w", ctx.Err())
	}
}

// Activate implements virtio.Device. Queues have numbers without gaps, so
// theirs depend on the features that were acknowledged (virtio 1.3 §5.5.2).
func (d *Device) Activate(a virtio.Activation) error {
	r := reclaimer{host: d.options.Reclaimer, memory: a.Memory, metrics: &d.metrics}
	handlers := []func(ring, *virtio.Kick) virtio.Handler{
		func(q ring, _ *virtio.Kick) virtio.Handler { return &inflater{ring: q, reclaimer: r} },
		func(q ring, _ *virtio.Kick) virtio.Handler { return &deflater{ring: q, metrics: &d.metrics} },
	}
	if a.Features&FeatureStats != 0 {
		handlers = append(handlers, d.newStats)
	}
	if a.Features&FeatureReporting != 0 {
		handlers = append(handlers, func(q ring, _ *virtio.Kick) virtio.Handler {
			return &reporter{ring: q, reclaimer: r, spans: make([]span, 0, queueSize)}
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.interrupt = a.Interrupt
	for i, q := range a.Queues[:min(len(handlers), len(a.Queues))] {
		if q.Queue == nil {
			continue
		}
		h := handlers[i](ring{queue: q.Queue, interrupt: a.Interrupt}, q.Kick)
		d.workers = append(d.workers, a.Start(i, h))
	}
	return nil
}

// newStats makes the statistics queue's handler. Preconditions: mu is held.
func (d *Device) newStats(q ring, kick *virtio.Kick) virtio.Handler {
	d.stats = &statsSource{handler: &statistician{ring: q}, kick: kick, ended: make(chan struct{})}
	return d.stats.handler
}

// Pause implements virtio.Device.
func (d *Device) Pause() {
	for _, w := range d.workers {
		w.Pause()
	}
}

// Resume implements virtio.Device.
func (d *Device) Resume() {
	for _, w := range d.workers {
		w.Resume()
	}
}

// Reset implements virtio.Device. The target stays: it is the host's wish.
func (d *Device) Reset() {
	for _, w := range d.workers {
		w.Stop()
	}
	d.workers = nil
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stats != nil {
		close(d.stats.ended)
	}
	d.stats, d.interrupt = nil, nil
	d.config.setActual(0)
}
