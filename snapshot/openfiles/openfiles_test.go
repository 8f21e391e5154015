package openfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func opener(t *testing.T, name string, size int) func() (*os.File, error) {
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() (*os.File, error) { return os.Open(path) }
}

func isOpen(f *File) bool {
	_, err := f.Stat()
	return err == nil
}

func get(t *testing.T, c *Cache, key string, nameless bool) *File {
	t.Helper()
	f, err := c.Acquire(key, nameless, opener(t, "f", 8192))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestIdleFilesAreFew(t *testing.T) {
	c := New(2, 1<<20)
	defer c.Close()
	var files []*File
	for i := range 4 {
		files = append(files, get(t, c, fmt.Sprint(i), false))
	}
	again := get(t, c, "0", false)
	if again != files[0] {
		t.Error("opened twice")
	}
	for _, f := range files {
		f.Release()
	}
	for i, want := range []bool{true, false, true, true} { // 0 is in use
		if isOpen(files[i]) != want {
			t.Errorf("file %d: open is %v", i, !want)
		}
	}
	again.Release()
	c.Forget(func(key string) bool { return key == "3" })
	if isOpen(files[3]) {
		t.Error("a forgotten file is open")
	}
	bad := errors.New("bad")
	if _, err := c.Acquire("x", false, func() (*os.File, error) { return nil, bad }); !errors.Is(err, bad) {
		t.Error(err)
	}
}

func TestNamelessFilesAreBounded(t *testing.T) {
	c := New(100, 10000)
	plain := get(t, c, "plain", false)
	plain.Release()
	var files []*File
	for i := range 3 {
		files = append(files, get(t, c, fmt.Sprint(i), true))
	}
	for _, f := range files {
		f.Release()
	}
	if isOpen(files[0]) || isOpen(files[1]) || !isOpen(files[2]) || !isOpen(plain) {
		t.Error("wrong files are kept")
	}
	held := get(t, c, "2", true)
	c.Close()
	if !isOpen(held) || isOpen(plain) {
		t.Error("closed what is in use, or not what is idle")
	}
	held.Release()
	late := get(t, c, "late", true)
	late.Release()
	if isOpen(held) || isOpen(late) || c.bytes != 0 {
		t.Error("a closed cache keeps files")
	}
}

func TestConcurrentUse(t *testing.T) {
	c := New(3, 1<<20)
	defer c.Close()
	open := opener(t, "f", 10)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				f, err := c.Acquire(fmt.Sprint((i+n)%6), n%2 == 0, open)
				if err != nil || !isOpen(f) {
					t.Error(err, "or closed while it is used")
					return
				}
				if n%50 == 0 {
					c.Forget(func(key string) bool { return key == "1" })
				}
				f.Release()
			}
		})
	}
	wg.Wait()
}
