package rootfs

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// heartbeat is how often a running step repeats its line, so that a person (and
// a CI job that ends what is silent) sees that it lives.
const heartbeat = 10 * time.Second

// progress writes one line for each step of a build. Steps may run side by side.
type progress struct {
	mu sync.Mutex
	w  io.Writer
}

// newProgress returns a progress that writes to w; nil keeps silent.
func newProgress(w io.Writer) *progress {
	if w == nil {
		w = io.Discard
	}
	return &progress{w: w}
}

// say writes one line "image: TEXT".
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A progress line that cannot be written must not fail a build.
	_, _ = fmt.Fprintf(p.w, "image: "+format+"\n", args...)
}

// step says that a step begins and repeats it until the returned function is
// called, which says how long it took when *err is nil.
func (p *progress) step(err *error, format string, args ...any) (end func()) {
	text := fmt.Sprintf(format, args...)
	start := time.Now()
	p.say("%s", text)
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.say("%s (%.0f s)", text, time.Since(start).Seconds())
			case <-stop:
				return
			}
		}
	})
	return func() {
		close(stop)
		done.Wait()
		if err == nil || *err == nil {
			p.say("%s: done in %.1f s", text, time.Since(start).Seconds())
		}
	}
}
