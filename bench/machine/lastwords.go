package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// What is asked of a machine that did not end in time.
const (
	// betweenCounts is long enough to tell a machine that crawls from one that
	// stands still.
	betweenCounts = time.Second
	// askTimeout bounds all questions: a VMM that does not answer is an answer too.
	askTimeout = 5 * time.Second
)

// Witness can be asked about a machine while it runs; a vmmproc.Process is one.
type Witness interface {
	Stats(ctx context.Context) (map[string]uint64, error)
	Console(ctx context.Context) ([]byte, error)
}

// LastWords adds to an error what a machine that was waited for in vain has to
// say: its counters, twice, and the end of its console. The error comes back as
// it is unless it is about time: a machine that ended has said why.
func LastWords(ctx context.Context, w Witness, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	// Of a context of its own: the machine's time is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	return fmt.Errorf("%w; %s", err, describe(ctx, w, betweenCounts))
}

// describe never fails: what could not be learned is said in its place.
func describe(ctx context.Context, w Witness, pause time.Duration) string {
	var counters string
	first, err := w.Stats(ctx)
	if err == nil {
		time.Sleep(pause)
		var second map[string]uint64
		if second, err = w.Stats(ctx); err == nil {
			counters = movement(first, second)
		}
	}
	if err != nil {
		counters = err.Error()
	}
	console, err := w.Console(ctx)
	if err != nil {
		return fmt.Sprintf("counters (%s apart): %s; console: %v", pause, counters, err)
	}
	return fmt.Sprintf("counters (%s apart): %s; %s", pause, counters, lastLines(console))
}

// movement lists the counters that are not zero by name, each with what it grew
// by: "exits.other 12, net0.rx_packets 5 +3". A gauge can shrink.
func movement(first, second map[string]uint64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(second)) {
		a, b := first[name], second[name]
		switch {
		case a == 0 && b == 0:
		case a == b:
			parts = append(parts, fmt.Sprintf("%s %d", name, b))
		default:
			parts = append(parts, fmt.Sprintf("%s %d %+d", name, b, int64(b-a)))
		}
	}
	if len(parts) == 0 {
		return "all zero"
	}
	return strings.Join(parts, ", ")
}
