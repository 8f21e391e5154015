package kernel

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	// tunedObjects is about how many steps the build of the tuned kernel has.
	// It serves the display only.
	tunedObjects = 2000
	// progressEvery is the time between two lines of progress.
	progressEvery = 5 * time.Second
)

// counter counts the steps that make prints ("  CC      kernel/fork.o") and
// says every few seconds how far the build is.
type counter struct {
	progress io.Writer
	began    time.Time
	done     chan struct{}
	once     sync.Once
	wg       sync.WaitGroup

	mu    sync.Mutex // protects steps
	steps int
}

func newCounter(progress io.Writer) *counter {
	c := &counter{progress: progress, began: time.Now(), done: make(chan struct{})}
	c.wg.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-c.done:
				return
			case <-tick.C:
				c.report()
			}
		}
	})
	return c
}

// Write counts lines: make prints one for each step.
func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.steps += bytes.Count(p, []byte{'\n'})
	c.mu.Unlock()
	return len(p), nil
}

func (c *counter) report() {
	c.mu.Lock()
	n := c.steps
	c.mu.Unlock()
	say(c.progress, "compiling, %d of about %d files, %s", n, max(n, tunedObjects), time.Since(c.began).Round(time.Second))
}

// stop ends the reports; nothing is written to progress afterwards. It may be
// called again.
func (c *counter) stop() {
	c.once.Do(func() { close(c.done) })
	c.wg.Wait()
}
