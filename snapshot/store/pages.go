package store

import (
	"fmt"
	"os"

	"thaw/snapshot/durable"
	"thaw/snapshot/pageindex"
)

// copyPages carries out one move, from an overlay to the file that takes its place.
// The kernel copies; where it cannot between these files, it goes through a buffer.
func copyPages(to, from *os.File, m pageindex.Move) error {
	const page = pageindex.PageSize
	off, at, left := int64(m.From)*page, int64(m.To)*page, int(m.Count)*page
	buf := make([]byte, min(left, 1<<20))
	for left > 0 {
		b := buf[:min(left, len(buf))]
		if n, err := from.ReadAt(b, off); n != len(b) {
			return fmt.Errorf("store: read %d bytes of %d pages: %w", n, m.Count, errorOr(err))
		}
		if _, err := to.WriteAt(b, at); err != nil {
			return fmt.Errorf("store: write pages: %w", durable.Full(err))
		}
		off, at, left = off+int64(len(b)), at+int64(len(b)), left-len(b)
	}
	return nil
}

func errorOr(err error) error {
	if err == nil {
		return ErrDamaged
	}
	return err
}
