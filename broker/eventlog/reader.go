package eventlog

import (
	"context"
	"io"
	"sort"
	"time"
)

// Reader takes entries in order. It is for one goroutine.
type Reader struct {
	log *Log

	// pos and progress are protected by log.mu.
	pos      uint64    // id of the last entry taken
	progress time.Time // when it last took one, or began to wait for one
}

// Next returns the next entry, waiting for it. A gap that is not zero says what
// was dropped just before the entry. After the last entry of a closed log it
// returns io.EOF.
func (r *Reader) Next(ctx context.Context) (Entry, Gap, error) {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		i := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].ID > r.pos })
		if i < len(l.entries) {
			e := l.entries[i]
			gap := l.gap(r.pos, e.ID)
			r.pos, r.progress = e.ID, time.Now()
			l.wake()
			return e, gap, nil
		}
		if l.closed {
			return Entry{}, Gap{}, io.EOF
		}
		// All taken: the reader is not slow while it waits.
		r.progress = time.Now()
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
			l.mu.Lock()
		case <-ctx.Done():
			l.mu.Lock()
			return Entry{}, Gap{}, context.Cause(ctx)
		}
	}
}

// gap sums what was dropped between two ids. Runs are merged only when adjacent,
// and a reader never stops inside one that is kept, so a run that began before
// pos is counted whole: an upper bound. Preconditions: log.mu is held.
func (l *Log) gap(pos, next uint64) Gap {
	var g Gap
	for i := len(l.dropped) - 1; i >= 0 && l.dropped[i].last > pos; i-- {
		if l.dropped[i].first < next {
			g.Events += l.dropped[i].events
			g.Bytes += l.dropped[i].bytes
		}
	}
	return g
}

// Close detaches the reader.
func (r *Reader) Close() {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.readers, r)
	if len(l.readers) == 0 {
		l.noReader = time.Now()
	}
	l.wake()
}
