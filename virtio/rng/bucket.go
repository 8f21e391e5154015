package rng

import (
	"fmt"
	"time"
)

const (
	// MaxRate is the largest rate, in bytes a second.
	MaxRate = 1 << 30
	// minCost is what the smallest request takes from the bucket, in bytes:
	// about what it costs the host beside the bytes.
	minCost = 64
)

// bucket is a token bucket that may go into debt by one request, so that a
// request is never cut to what is left. One token is one byte.
type bucket struct {
	rate   int64 // tokens a second
	size   int64
	tokens int64
	last   time.Time // when tokens was right
}

func newBucket(rate int64) (bucket, error) {
	if rate < 1 || rate > MaxRate {
		return bucket{}, fmt.Errorf("rng: limit to %d bytes a second: %w", rate, ErrRate)
	}
	size := max(rate, MaxRequest)
	return bucket{rate: rate, size: size, tokens: size}, nil
}

// wait is how long it takes until something may be spent: zero when it may
// now.
func (b *bucket) wait(now time.Time) time.Duration {
	b.refill(now)
	if b.tokens > 0 {
		return 0
	}
	missing := 1 - b.tokens
	return time.Duration(missing)*time.Second/time.Duration(b.rate) + 1
}

func (b *bucket) spend(n int64) { b.tokens -= n }

// refill adds what has come in since the last time. The fraction of a token
// that is left over stays in last.
func (b *bucket) refill(now time.Time) {
	if b.last.IsZero() {
		b.last = now
		return
	}
	since := now.Sub(b.last)
	if full := b.size - b.tokens; since/time.Second > time.Duration(full/b.rate) {
		b.tokens, b.last = b.size, now
		return
	}
	add := int64(since) * b.rate / int64(time.Second)
	if add <= 0 {
		return
	}
	b.tokens = min(b.size, b.tokens+add)
	b.last = b.last.Add(time.Duration(add * int64(time.Second) / b.rate))
}
