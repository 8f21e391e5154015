package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// A pile can be made lower while its disk keeps its bytes: blocks lie at their own
// offset in every layer, so that layers become one by copying, and the index by
// renumbering.
//
//	 before            after Fold(1, 4)
//	4 ░█░░░░  top      2 ░█░░░░  top
//	3 ░░█░░░
//	2 ░░█░█░           1 ░░█░██  what was seen of 1 to 3 from above
//	1 ░░░░██
//	0 ██████  bottom   0 ██████  bottom

// Validate checks a saved index by itself, without its files. Errors wrap ErrState.
func (s State) Validate(readOnly bool) error {
	if s.Size <= 0 || s.Size%SectorSize != 0 || s.Size > MaxSize || s.Layers < 1 || s.Layers > MaxLayers {
		return fmt.Errorf("disk: index of %d bytes in %d layers: %w", s.Size, s.Layers, ErrState)
	}
	top := s.Layers
	if !readOnly {
		top--
	}
	if len(s.Under)+len(s.Top) > 0 && s.Layers == 1 {
		return fmt.Errorf("disk: index for a single file: %w", ErrState)
	}
	if _, err := s.Under.check(s.Size, 0, top); err != nil {
		return err
	}
	_, err := s.Top.check(s.Size, top, s.Layers)
	return err
}

// Fold returns the index of the same disk when the layers from first up to, not
// including, last are one, which CopyBlocks makes. Preconditions: s is valid,
// 0 < first < last <= s.Layers.
func (s State) Fold(first, last int) State {
	s.Under, s.Top = s.Under.fold(first, last), s.Top.fold(first, last)
	s.Layers -= last - first - 1
	return s
}

func (r Runs) fold(first, last int) Runs {
	if len(r) == 0 {
		return r // nil stays nil, so that a state that is not changed keeps its bytes
	}
	out := make(Runs, 0, len(r))
	for i := range r.Len() {
		run := r.At(i)
		switch layer := int(run.Layer); {
		case layer >= last:
			run.Layer -= uint16(last - first - 1)
		case layer >= first:
			run.Layer = uint16(first)
		}
		out = out.Append(run)
	}
	return out
}

// Rebase returns the index of a disk that has just been frozen as if its machine had
// run on below, another pile with the same bytes: what the last frozen layer of s holds,
// over what below has. below's own top is empty and not counted. Preconditions: both
// are valid indexes of writable disks. Errors wrap ErrState: an index that was
// not saved right after Freeze, or of another disk.
func (s State) Rebase(below State) (State, error) {
	if s.Size != below.Size || s.Layers < 3 || below.Layers < 2 || below.Layers == MaxLayers || len(s.Top) > 0 || len(below.Top) > 0 {
		return State{}, fmt.Errorf("disk: rebase %d bytes in %d layers on %d bytes in %d layers: %w", s.Size, s.Layers, below.Size, below.Layers, ErrState)
	}
	own, as := s.Layers-2, uint16(below.Layers-1)
	var added Runs
	for i := range s.Under.Len() {
		if run := s.Under.At(i); int(run.Layer) == own {
			run.Layer = as
			added = added.Append(run)
		}
	}
	return State{Size: s.Size, Layers: below.Layers + 1, Under: added.Over(below.Under)}, nil
}

// CopyBlocks writes the blocks that are seen of the layers from first up to, not
// including, last to out, which is as long as the disk then. Of files only those are
// used. Preconditions: s is valid. Errors wrap ErrState if a file is too short.
func (s State) CopyBlocks(ctx context.Context, out *os.File, files []*os.File, first, last int) error {
	if err := out.Truncate(s.Size); err != nil {
		return fmt.Errorf("disk: size folded layer: %w", err)
	}
	buf := make([]byte, copyBytes)
	for _, runs := range []Runs{s.Under, s.Top} {
		for i := range runs.Len() {
			run := runs.At(i)
			if layer := int(run.Layer); run.Zero || layer < first || layer >= last {
				continue
			}
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("disk: fold layers: %w", err)
			}
			from, end := int64(run.First)*BlockSize, min(int64(run.end())*BlockSize, s.Size)
			if err := copyRange(out, files[run.Layer], from, end, buf); err != nil {
				return fmt.Errorf("disk: fold %d blocks of layer %d: %w", run.Count, run.Layer, err)
			}
		}
	}
	return nil
}

// copyBytes is how much is copied at a time.
const copyBytes = 1 << 20

func copyRange(to, from *os.File, at, end int64, buf []byte) error {
	for at < end {
		b := buf[:min(int64(len(buf)), end-at)]
		n, err := from.ReadAt(b, at)
		if n < len(b) && errors.Is(err, io.EOF) {
			return fmt.Errorf("file ends at %d: %w", at+int64(n), ErrState)
		}
		if n < len(b) {
			return err
		}
		if _, err := to.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}
