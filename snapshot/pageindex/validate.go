package pageindex

import (
	"fmt"
	"math"
)

// Validate checks that the runs ascend without overlap inside the memory, and
// that each lies inside its source: sourcePages[i] is the size in pages of
// source FirstOverlay+i. Every error wraps ErrIndex.
func (x *Index) Validate(sourcePages []uint32) error {
	if err := x.check(); err != nil {
		return err
	}
	for i, r := range x.Runs {
		if !r.Dense() {
			continue
		}
		n := int(r.Source) - FirstOverlay
		if n >= len(sourcePages) {
			return fmt.Errorf("pageindex: run %d is in source %d of %d: %w", i, r.Source, len(sourcePages)+FirstOverlay, ErrIndex)
		}
		if end := uint64(r.At) + uint64(r.Count); end > uint64(sourcePages[n]) {
			return fmt.Errorf("pageindex: run %d ends at page %d of source %d, which has %d: %w", i, end, r.Source, sourcePages[n], ErrIndex)
		}
	}
	return nil
}

// check is what can be said without the sources.
func (x *Index) check() error {
	var end uint64
	for i, r := range x.Runs {
		if err := x.checkRun(r, end); err != nil {
			return fmt.Errorf("pageindex: run %d: %w: %w", i, err, ErrIndex)
		}
		end = uint64(r.First) + uint64(r.Count)
	}
	return nil
}

func (x *Index) checkRun(r Run, after uint64) error {
	switch end := uint64(r.First) + uint64(r.Count); {
	case r.Count == 0:
		return fmt.Errorf("no pages at page %d", r.First)
	case uint64(r.First) < after:
		return fmt.Errorf("page %d is named twice or out of order", r.First)
	case end > uint64(x.Pages):
		return fmt.Errorf("pages up to %d in a memory of %d", end, x.Pages)
	case r.Source == Zero && r.At != 0:
		return fmt.Errorf("zero pages at page %d of a file", r.At)
	case r.Source == Base && r.At != r.First:
		return fmt.Errorf("template page %d at page %d of its file", r.First, r.At)
	case uint64(r.At)+uint64(r.Count) > math.MaxUint32:
		return fmt.Errorf("page %d of source %d is out of range", r.At, r.Source)
	}
	return nil
}
