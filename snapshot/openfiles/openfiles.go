// Package openfiles keeps files open that are used again and again. Opening the hundred
// layers of a deep chain anew would take longer than the rest of a restore.
package openfiles

import (
	"os"
	"sync"

	"thaw/snapshot/durable"
)

// Cache keeps files by key. What is in use stays open; of the rest, those known
// longest go first when there are too many. It is safe for several goroutines.
type Cache struct {
	maxIdle  int
	maxBytes int64

	mu     sync.Mutex
	files  map[string]*File // protected by mu
	idle   []string         // keys of files that have been idle, the longest known first; protected by mu
	bytes  int64            // of nameless files; protected by mu
	closed bool             // protected by mu
}

// File is a file that several users share. Nobody may use its position, or close it.
type File struct {
	*os.File

	key   string
	cache *Cache
	refs  int   // protected by cache.mu
	gone  bool  // closed with its last use; protected by cache.mu
	idle  bool  // listed as idle; protected by cache.mu
	bytes int64 // that only this file keeps on disk
}

// New returns a cache that keeps maxIdle files which nobody uses, and of those without a
// name as many as take maxBytes.
func New(maxIdle int, maxBytes int64) *Cache {
	return &Cache{maxIdle: maxIdle, maxBytes: maxBytes, files: map[string]*File{}}
}

// Acquire returns the file of key. open opens it, without the lock, if it is not open yet;
// nameless says that nothing else keeps its bytes on the disk.
func (c *Cache) Acquire(key string, nameless bool, open func() (*os.File, error)) (*File, error) {
	if f := c.held(key); f != nil {
		return f, nil
	}
	opened, err := open()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.files[key]; f != nil { // another was faster
		opened.Close()
		f.refs++
		return f, nil
	}
	f := &File{File: opened, key: key, cache: c, refs: 1, gone: c.closed}
	if nameless {
		f.bytes = durable.FileUse(opened)
		c.bytes += f.bytes
	}
	if !f.gone {
		c.files[key] = f
	}
	return f, nil
}

func (c *Cache) held(key string) *File {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.files[key]
	if f != nil {
		f.refs++
	}
	return f
}

// Release ends one use of a file.
func (f *File) Release() {
	c := f.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.refs--; f.refs > 0 {
		return
	}
	if f.gone {
		c.shut(f)
		return
	}
	if !f.idle {
		f.idle = true
		c.idle = append(c.idle, f.key)
	}
	c.trim(func() bool { return len(c.idle) > c.maxIdle }, func(*File) bool { return true })
	c.trim(func() bool { return c.bytes > c.maxBytes }, func(f *File) bool { return f == nil || f.bytes > 0 })
}

// trim closes idle files of those that want wants, the longest known first, as long as more
// says so. Preconditions: mu is held.
func (c *Cache) trim(more func() bool, want func(f *File) bool) {
	for i := 0; i < len(c.idle) && more(); {
		f := c.files[c.idle[i]]
		if !want(f) {
			i++
			continue
		}
		if f != nil && f.refs == 0 {
			c.shut(f)
		} else if f != nil {
			f.idle = false // in use: listed again when it is released
		}
		c.idle = append(c.idle[:i], c.idle[i+1:]...)
	}
}

// shut closes a file that nobody uses. Preconditions: mu is held.
func (c *Cache) shut(f *File) {
	if c.files[f.key] == f {
		delete(c.files, f.key)
	}
	c.bytes -= f.bytes
	f.File.Close()
}

// Forget closes the files for whose keys want says yes, those in use when they are released.
func (c *Cache) Forget(want func(key string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, f := range c.files {
		if !want(key) {
			continue
		}
		delete(c.files, key)
		if f.gone = true; f.refs == 0 {
			c.shut(f)
		}
	}
}

// Close forgets every file, and keeps none from then on.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.Forget(func(string) bool { return true })
}
