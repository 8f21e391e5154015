package store

import (
	"fmt"

	"thaw/snapshot/durable"
)

// room says whether the store may grow by n bytes.
func (s *Store) room(n int64) error {
	free, err := durable.Free(s.root)
	if err != nil {
		return err
	}
	if free-n < s.opts.MinFree {
		return fmt.Errorf("durable: %d bytes wanted, %d free, %d reserved: %w", n, free, s.opts.MinFree, ErrNoSpace)
	}
	if used := s.Used(); s.opts.MaxBytes > 0 && used+n > s.opts.MaxBytes {
		return fmt.Errorf("durable: %d bytes wanted, %d used of %d: %w", n, used, s.opts.MaxBytes, ErrNoSpace)
	}
	return nil
}

// Used is how many bytes of disk the snapshots take.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for _, e := range s.entries {
		n += e.bytes
	}
	return n
}
