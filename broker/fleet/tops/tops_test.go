package tops

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/broker/boot"
	"thaw/broker/fleet/files"
)

const mib = 1 << 20

func take(t *testing.T, tops *Tops, bytes int64) *os.File {
	t.Helper()
	f, err := tops.Take(bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func give(t *testing.T, tops *Tops, f *os.File) {
	t.Helper()
	if err := tops.Give(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("whoever gave the file has it still: %v", err)
	}
}

func stat(t *testing.T, f *os.File) (st unix.Stat_t) {
	t.Helper()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st
}

// wantEmpty checks that a file is as one that was just made.
func wantEmpty(t *testing.T, f *os.File, size int64) {
	t.Helper()
	if st := stat(t, f); st.Size != size || st.Blocks != 0 || st.Nlink != 0 {
		t.Errorf("size %d, want %d; %d blocks, %d names", st.Size, size, st.Blocks, st.Nlink)
	}
	if at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_DATA); !errors.Is(err, unix.ENXIO) {
		t.Errorf("data at %d, %v", at, err)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&(unix.O_ACCMODE|unix.O_APPEND|unix.O_DIRECT|unix.O_NONBLOCK) != unix.O_RDWR {
		t.Errorf("flags %#o, %v", flags, err)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags != unix.FD_CLOEXEC {
		t.Errorf("flags of the descriptor %#o, %v", flags, err)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if at := bytes.IndexFunc(b, func(r rune) bool { return r != 0 }); at >= 0 {
		t.Errorf("%q at %d", b[at:at+16], at)
	}
}

// Whatever a machine wrote and set, wherever, the next one has an empty file.
func TestNothingOfTheFormerMachine(t *testing.T) {
	tops := New(t.TempDir())
	defer tops.Close()
	f := take(t, tops, 8*mib)
	wantEmpty(t, f, 8*mib)
	inode := stat(t, f).Ino
	for _, size := range []int64{8 * mib, 16 * mib, 4 * mib, 8*mib + 512, 8 * mib} {
		end := stat(t, f).Size
		for _, at := range []int64{0, end / 2, end - 512} {
			if _, err := f.WriteAt(bytes.Repeat([]byte("secret"), 80), at); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, end-mib, 4*mib); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte("secret"), 80), mib); err != nil { // and not on the disk yet
			t.Fatal(err)
		}
		if _, err := f.Seek(5, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFL, unix.O_APPEND|unix.O_NONBLOCK); err != nil {
			t.Fatal(err)
		}
		give(t, tops, f)
		f = take(t, tops, size)
		if st := stat(t, f); st.Ino != inode {
			t.Errorf("inode %d, want that of the former machine, %d", st.Ino, inode)
		}
		wantEmpty(t, f, size)
		if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != 0 {
			t.Errorf("position %d, %v", at, err)
		}
		// What is written is where it was written.
		if _, err := f.WriteAt([]byte("mine"), 4096); err != nil {
			t.Fatal(err)
		}
		if st := stat(t, f); st.Size != size {
			t.Errorf("size %d, want %d", st.Size, size)
		}
	}
}

// A file that is open anywhere else is not used again.
func TestOpenElsewhere(t *testing.T) {
	for name, open := range map[string]func(f *os.File) (*os.File, error){
		"a layer": files.ReadOnly,
		"a process that has a descriptor": func(f *os.File) (*os.File, error) {
			fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
			return os.NewFile(uintptr(fd), "copy"), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			tops := New(t.TempDir())
			defer tops.Close()
			f := take(t, tops, mib)
			other, err := open(f)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			give(t, tops, f)
			if len(tops.idle) != 0 {
				t.Error("the file is to be used again")
			}
			if next := take(t, tops, mib); stat(t, next).Ino == stat(t, other).Ino {
				t.Error("two have the same file")
			}
		})
	}
}

func TestFilesThatCannotBeUsedAgain(t *testing.T) {
	tops := New(t.TempDir())
	f := take(t, tops, mib)
	closed, err := files.ReadOnly(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := tops.Give(closed); !errors.Is(err, unix.EINVAL) { // cannot be emptied
		t.Errorf("a file that is read only: %v", err)
	}
	if err := closed.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("it is open: %v", err)
	}
	if err := tops.Give(f); err != nil || len(tops.idle) != 1 {
		t.Errorf("%v, %d files wait", err, len(tops.idle))
	}
	tops.idle[0].Close() // cannot be sized
	wantEmpty(t, take(t, tops, mib), mib)
}

func TestBounds(t *testing.T) {
	dir := t.TempDir()
	tops := New(dir)
	var work sync.WaitGroup
	for range 2 * maxIdle {
		f, err := boot.ScratchDisk(dir, mib)
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			if err := tops.Give(f); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if len(tops.idle) != maxIdle {
		t.Errorf("%d files wait, want %d", len(tops.idle), maxIdle)
	}
	seen := map[uint64]bool{}
	for range maxIdle {
		f := take(t, tops, mib)
		if seen[stat(t, f).Ino] {
			t.Error("two have the same file")
		}
		seen[stat(t, f).Ino] = true
	}
	idle := take(t, tops, mib)
	late := take(t, tops, mib)
	give(t, tops, idle)
	if err := tops.Close(); err != nil {
		t.Error(err)
	}
	give(t, tops, late)
	if len(tops.idle) != 0 {
		t.Errorf("%d files wait after the end", len(tops.idle))
	}
}
