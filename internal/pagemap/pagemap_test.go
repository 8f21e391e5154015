package pagemap

import (
	"errors"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// scanner scans this process.
func scanner(t *testing.T) *Scanner {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return New(f)
}

// mapped returns pages of memory, of file if there is one.
func mapped(t *testing.T, file *os.File, pages int) []byte {
	t.Helper()
	fd, flags := -1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS
	if file != nil {
		fd, flags = int(file.Fd()), unix.MAP_PRIVATE
	}
	mem, err := unix.Mmap(fd, 0, pages*PageSize, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	// Else one touch could make a huge page of them all.
	_ = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	return mem
}

func private(t *testing.T, s *Scanner, mem []byte) []Range {
	t.Helper()
	list, err := s.Private(mem, nil)
	if errors.Is(err, ErrNotSupported) && os.Getenv("REQUIRE_KVM") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestPrivatePages(t *testing.T) {
	fd, err := unix.MemfdCreate("pagemap", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "memfd")
	defer file.Close()
	const pages = 3 * answers
	if err := file.Truncate(pages * PageSize); err != nil {
		t.Fatal(err)
	}
	s := scanner(t)
	for _, c := range []struct {
		name string
		mem  []byte
	}{{"anonymous", mapped(t, nil, pages)}, {"of a file", mapped(t, file, pages)}} {
		t.Run(c.name, func(t *testing.T) {
			if got := private(t, s, c.mem); len(got) != 0 {
				t.Fatalf("untouched memory has private pages: %v", got)
			}
			var sum byte
			for i := range 100 {
				sum += c.mem[i*PageSize] // read: a page of the file, or of zeros
			}
			if got := private(t, s, c.mem); len(got) != 0 || sum != 0 {
				t.Fatalf("reading made private pages: %v", got)
			}
			for _, page := range []int{1, 2, 3, 7, pages - 1} {
				c.mem[page*PageSize+5] = 1
			}
			want := []Range{{1, 3}, {7, 1}, {pages - 1, 1}}
			if got := private(t, s, c.mem); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			// More ranges than one call answers.
			for page := 0; page < pages; page += 2 {
				c.mem[page*PageSize] = 1
			}
			got := private(t, s, c.mem)
			if n := Pages(got); n != pages/2+4 {
				t.Errorf("%d private pages in %d ranges, want %d", n, len(got), pages/2+4)
			}
			if err := unix.Madvise(c.mem, unix.MADV_DONTNEED); err != nil {
				t.Fatal(err)
			}
			if got := private(t, s, c.mem); len(got) != 0 {
				t.Errorf("memory that was given back has private pages: %v", got)
			}
		})
	}
}

func TestNotAPagemap(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := New(f).Private(mapped(t, nil, 1), nil); !errors.Is(err, ErrNotSupported) {
		t.Errorf("got %v, want %v", err, ErrNotSupported)
	}
}
