package store

import (
	"os"
	"strings"

	"thaw/snapshot/durable"
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
	// bytes of a file that only this daemon knows, since it has no name
	bytes int64
}

// openedFiles keeps open files, by snapshot/name.
type openedFiles struct {
	files map[string]*opened
	idle  []string // keys of files that have been idle, the longest known first
	bytes int64    // of those without a name
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
		if strings.HasPrefix(key[manifest.IDLength+1:], foldPrefix) {
			o.bytes = durable.FileUse(f)
			s.files.bytes += o.bytes
		}
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
	c := &s.files
	if o.gone {
		c.shut(key, o)
		return
	}
	if !o.idle {
		o.idle = true
		c.idle = append(c.idle, key)
	}
	c.trim(0, maxIdle, func(*opened) bool { return true })
	c.trim(foldBytes, 0, func(o *opened) bool { return o == nil || o.bytes > 0 })
}

// trim closes idle files, of those for which want says yes, the longest known first, until
// nameless ones take no more than bytes, and no more than files are left; either alone
// does if the other is 0. Preconditions: Store.mu is held.
func (c *openedFiles) trim(bytes int64, files int, want func(o *opened) bool) {
	for i := 0; i < len(c.idle); {
		if files > 0 && len(c.idle) <= files || files == 0 && c.bytes <= bytes {
			return
		}
		key := c.idle[i]
		old := c.files[key]
		if !want(old) {
			i++
			continue
		}
		if old != nil && old.refs == 0 {
			c.shut(key, old)
		} else if old != nil {
			old.idle = false // in use: listed again when it is given back
		}
		c.idle = append(c.idle[:i], c.idle[i+1:]...)
	}
}

// shut closes a file that nobody uses.
func (c *openedFiles) shut(key string, o *opened) {
	if c.files[key] == o {
		delete(c.files, key)
	}
	c.bytes -= o.bytes
	o.f.Close()
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
			c.shut(key, o)
		}
	}
}
