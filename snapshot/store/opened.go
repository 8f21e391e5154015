package store

import (
	"os"

	"thaw/snapshot/manifest"
)

// maxIdle is how many files that nobody uses stay open.
const maxIdle = 1024

// opened is a file of the store that chains share. Opening the hundred layers of a
// deep chain anew would take longer than the rest of Resolve. Nobody may use
// its position.
type opened struct {
	f    *os.File
	refs int // chains that use it; protected by Store.mu
	gone bool
	idle bool // listed as idle
}

// openedFiles keeps open files, by snapshot/name.
type openedFiles struct {
	files map[string]*opened
	idle  []string // keys of files that have been idle, the longest known first
}

// acquire returns a shared file. open opens and verifies it, without the lock, if it is
// not open yet.
func (s *Store) acquire(key string, open func() (*os.File, error)) (*opened, error) {
	s.mu.Lock()
	o := s.files.files[key]
	if o != nil {
		o.refs++
	}
	s.mu.Unlock()
	if o != nil {
		return o, nil
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.files.files[key]; o != nil { // another was faster
		f.Close()
		o.refs++
		return o, nil
	}
	o = &opened{f: f, refs: 1, gone: s.closed || s.entries[key[:manifest.IDLength]] == nil}
	if !o.gone {
		if s.files.files == nil {
			s.files.files = map[string]*opened{}
		}
		s.files.files[key] = o
	}
	return o, nil
}

// giveBack ends one use of a file.
func (s *Store) giveBack(key string, o *opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.refs--; o.refs > 0 {
		return
	}
	if o.gone {
		o.f.Close()
		return
	}
	c := &s.files
	if !o.idle {
		o.idle = true
		c.idle = append(c.idle, key)
	}
	for len(c.idle) > maxIdle {
		old := c.files[c.idle[0]]
		if old != nil && old.refs == 0 {
			delete(c.files, c.idle[0])
			old.f.Close()
		} else if old != nil {
			old.idle = false // in use: listed again when it is given back
		}
		c.idle = c.idle[1:]
	}
}

// forget closes the files for which want says yes, those in use when they are given
// back. Preconditions: Store.mu is held.
func (c *openedFiles) forget(want func(key string) bool) {
	for key, o := range c.files {
		if !want(key) {
			continue
		}
		delete(c.files, key)
		if o.gone = true; o.refs == 0 {
			o.f.Close()
		}
	}
}
