package hot

import (
	"math/bits"
)

// span is the layers first to last-1 of a chain's overlays, counted from 0.
type span struct{ first, last int }

// spans parts n layers into groups: the powers of two of n, the largest first. If
// there are more than limit, the last ones are one group.
func spans(n, limit int) []span {
	var out []span
	for at := 0; at < n; {
		size := 1 << (bits.Len(uint(n-at)) - 1)
		if len(out) == limit-1 {
			size = n - at
		}
		out = append(out, span{at, at + size})
		at += size
	}
	return out
}
