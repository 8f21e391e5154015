package fleet

import (
	"os"
	"sync/atomic"

	"thaw/snapshot/format"
	"thaw/snapshot/hot"
)

const (
	mib      = 1 << 20
	pageSize = 4096
)

// shared is a file that several images and machines use: closed when the last one
// lets go.
type shared struct {
	*os.File
	refs atomic.Int32
	free func() // instead of closing it, or nil
}

// share returns f with one user.
func share(f *os.File) *shared {
	s := &shared{File: f}
	s.refs.Store(1)
	return s
}

// use adds a user; to nil none.
func (s *shared) use() *shared {
	if s != nil {
		s.refs.Add(1)
	}
	return s
}

// release takes a user away; of nil none.
func (s *shared) release() {
	if s == nil || s.refs.Add(-1) > 0 {
		return
	}
	if s.free != nil {
		s.free()
		return
	}
	s.File.Close()
}

// shareHot returns the base and the overlays of a snapshot's memory, which goes back
// to the cache when the last of them is released.
func shareHot(m *hot.Memory) (base *shared, overlays []*shared) {
	var users atomic.Int32
	one := func(f *os.File) *shared {
		s := share(f)
		users.Add(1)
		s.free = func() {
			if users.Add(-1) == 0 {
				m.Release()
			}
		}
		return s
	}
	base = one(m.Base)
	for _, f := range m.Overlays {
		overlays = append(overlays, one(f))
	}
	return base, overlays
}

// stateSize is room for a machine's state, in bytes.
const stateSize = format.MaxFile
