// Package eventlog is the bounded, replayable log of one job's events.
//
// There are two kinds of entries. Control entries (states, the result) are few,
// always accepted and always kept. Output entries carry bytes that a hostile
// program produces as fast as it likes; together they never hold more than
// Options.MaxBytes. When there is no room the writer waits, as it would on a
// pipe, for one of:
//
//	every attached reader has taken the oldest output   → it is dropped, all have seen it
//	a reader took nothing for Options.Stall             → that reader will see a gap
//	nobody has been attached for Options.Attach         → it is dropped, later readers see a gap
//
// A reader resumes after any entry id; what is no longer kept comes as one gap.
package eventlog

import (
	"context"
	"io"
	"sync"
	"time"
)

// Entry is one event. IDs start at 1 and rise by 1.
type Entry struct {
	ID     uint64
	Type   string
	Data   []byte // not to be changed
	output bool
}

// Gap tells how much a reader missed.
type Gap struct {
	Events, Bytes int64
}

// Options bounds a log.
type Options struct {
	MaxBytes int           // of output entries together
	Attach   time.Duration // how long a full log waits for a first or next reader
	Stall    time.Duration // how long a full log waits for a reader that takes nothing
}

// Log is safe for concurrent use.
type Log struct {
	opts Options

	mu       sync.Mutex
	entries  []Entry // protected by mu, as is the rest; ascending ids, with holes where output was dropped
	bytes    int     // of output in entries
	next     uint64
	dropped  []drop // where output was dropped, for gaps; merged, so as long as control entries are
	readers  map[*Reader]struct{}
	noReader time.Time // since when nobody has been attached
	closed   bool
	changed  chan struct{}
}

// drop is a run of dropped entries with ids first to last.
type drop struct {
	first, last   uint64
	events, bytes int64
}

// New makes an empty log.
func New(opts Options) *Log {
	return &Log{opts: opts, next: 1, readers: map[*Reader]struct{}{}, noReader: time.Now(), changed: make(chan struct{})}
}

// Append adds a control entry. It never waits, and does nothing on a closed log.
func (l *Log) Append(typ string, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(Entry{Type: typ, Data: data})
}

// AppendOutput adds an output entry, waiting for room. It fails only when ctx ends
// first, or when the entry alone is larger than the log.
func (l *Log) AppendOutput(ctx context.Context, typ string, data []byte) error {
	if len(data) > l.opts.MaxBytes {
		return io.ErrShortBuffer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.bytes+len(data) > l.opts.MaxBytes && !l.closed {
		wait := l.makeRoom(time.Now())
		if wait <= 0 {
			continue
		}
		changed := l.changed
		l.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			l.mu.Lock()
			return context.Cause(ctx)
		}
		timer.Stop()
		l.mu.Lock()
	}
	l.add(Entry{Type: typ, Data: data, output: true})
	return nil
}

// add appends. Preconditions: mu is held.
func (l *Log) add(e Entry) {
	if l.closed {
		return
	}
	e.ID = l.next
	l.next++
	if e.output {
		l.bytes += len(e.Data)
	}
	l.entries = append(l.entries, e)
	l.wake()
}

// wake wakes all who wait. Preconditions: mu is held.
func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// makeRoom drops the oldest output entry if the rules allow it now; else it
// returns how long until they might. Preconditions: mu is held.
func (l *Log) makeRoom(now time.Time) time.Duration {
	i := 0
	for i < len(l.entries) && !l.entries[i].output {
		i++
	}
	if i == len(l.entries) {
		return 0
	}
	oldest := l.entries[i]
	if len(l.readers) == 0 {
		if wait := l.opts.Attach - now.Sub(l.noReader); wait > 0 {
			return wait
		}
	}
	var wait time.Duration
	for r := range l.readers {
		if r.pos >= oldest.ID {
			continue
		}
		if left := l.opts.Stall - now.Sub(r.progress); left > wait {
			wait = left
		}
	}
	if wait > 0 {
		return wait
	}
	// The few control entries before it move up, not the many entries behind it.
	copy(l.entries[1:], l.entries[:i])
	l.entries[0] = Entry{}
	l.entries = l.entries[1:]
	l.bytes -= len(oldest.Data)
	l.noteDrop(oldest)
	return 0
}

// noteDrop records a dropped entry, merged with the run that it continues.
func (l *Log) noteDrop(e Entry) {
	n := len(l.dropped)
	if n > 0 && l.dropped[n-1].last+1 == e.ID {
		d := &l.dropped[n-1]
		d.last, d.events, d.bytes = e.ID, d.events+1, d.bytes+int64(len(e.Data))
		return
	}
	l.dropped = append(l.dropped, drop{first: e.ID, last: e.ID, events: 1, bytes: int64(len(e.Data))})
}

// Close ends the log: readers get io.EOF after the last entry, writers no longer wait.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.wake()
	}
}

// Subscribe attaches a reader that starts after the entry with id after (0: from
// the start). The caller must Close it.
func (l *Log) Subscribe(after uint64) *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Reader{log: l, pos: after, progress: time.Now()}
	l.readers[r] = struct{}{}
	l.wake()
	return r
}
