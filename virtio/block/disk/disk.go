// Package disk is the storage behind a block device: a pile of files, the
// lowest of which has the whole disk, each higher one only the blocks written
// since it was put on top.
//
//	top     ░░██░░░░█░░   written: its claims can be dropped, or it is frozen
//	layer 1 ░░░█░░░░░░█   frozen: never written again
//	bottom  ███████████   every block
//
// One index for the whole pile says which layer holds each block of 4 KiB, so
// a read costs the same at any depth, putting a new layer on top touches no
// block (Freeze), and dropping what the top wrote costs what it wrote (Drop).
// A disk of one file has no index: its reads and writes are one system call.
//
// The index is kept in memory and saved in State, never guessed from the
// files. A block of zeros that the guest wrote is data: it hides what lies
// below. The host may store it as a hole, and may report a hole as data
// (lseek(2) allows both), so a scan with SEEK_DATA could bring back bytes
// that the guest had overwritten.
//
// Reads may run on any number of goroutines. Write, Zero, Freeze and Drop
// belong to one goroutine at a time; Freeze and Drop need that no other call
// is running.
package disk

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// SectorSize is the unit of a disk's size, in bytes.
	SectorSize = 512
	// BlockSize is the unit in which layers hold data, in bytes: the page and
	// file system block of every guest here, so that whole blocks are written
	// and nothing is copied up.
	BlockSize = 4096
	// MaxLayers is how many files can be piled up.
	MaxLayers = 4096
	// MaxSize is the largest disk: 2²⁸ blocks, 1 TiB.
	MaxSize = BlockSize << 28
)

var (
	// ErrSize is wrapped when a file's size cannot be a disk's.
	ErrSize = errors.New("size is not a positive multiple of 512 bytes up to 1 TiB")
	// ErrLayers is wrapped when the files cannot be a pile of layers.
	ErrLayers = errors.New("files are not a pile of layers")
	// ErrState is wrapped when a saved index does not fit its files.
	ErrState = errors.New("saved block index is not valid")
	// ErrWouldBlock is returned by TryRead when the rest is not in memory.
	ErrWouldBlock = errors.New("disk: read would block")
	// ErrReadOnly is returned for writes to a read-only disk.
	ErrReadOnly = errors.New("disk: read only")
	// ErrOutOfRange is returned for a transfer that is not within the disk.
	ErrOutOfRange = errors.New("disk: transfer beyond the end")
)

// Disk is a pile of open files. The files stay the caller's, who closes them
// after the last use of the disk.
type Disk struct {
	size     int64
	readOnly bool
	layers   []layer
	index    *index // nil for a single file
	scratch  []byte // one block, for copying up
}

// layer is one file.
type layer struct {
	file *os.File // held so that the descriptor stays open
	fd   int
	id   identity
	size int64 // in bytes, when it was opened
	// tryFlags make a read fail rather than block: RWF_NOWAIT, or none where
	// the file is memory.
	tryFlags int
	// canTry is unset where the file system knows no RWF_NOWAIT: then every
	// read counts as one that would block.
	canTry bool
}

// Open returns the disk of the given files, bottom first. The lowest decides
// the size; the others must hold no data, since without a saved index nobody
// knows which blocks theirs are. Unless readOnly, the last is written.
func Open(files []*os.File, readOnly bool) (*Disk, error) {
	d, err := open(files, readOnly)
	if err != nil {
		return nil, err
	}
	for i, l := range d.layers[1:] {
		empty, err := l.empty()
		if err != nil {
			return nil, fmt.Errorf("disk: look for data in layer %d: %w", i+1, err)
		}
		if !empty {
			return nil, fmt.Errorf("disk: layer %d holds data, and there is no index: %w", i+1, ErrLayers)
		}
	}
	return d, nil
}

func open(files []*os.File, readOnly bool) (*Disk, error) {
	if len(files) == 0 || len(files) > MaxLayers {
		return nil, fmt.Errorf("disk: open %d files: %w", len(files), ErrLayers)
	}
	d := &Disk{readOnly: readOnly, layers: make([]layer, 0, len(files)), scratch: make([]byte, BlockSize)}
	for i, f := range files {
		l, err := newLayer(f, !readOnly && i == len(files)-1, d.layers)
		if err != nil {
			return nil, fmt.Errorf("disk: open layer %d: %w", i, err)
		}
		d.layers = append(d.layers, l)
	}
	size := d.layers[0].size
	if size <= 0 || size%SectorSize != 0 || size > MaxSize {
		return nil, fmt.Errorf("disk: bottom layer of %d bytes: %w", size, ErrSize)
	}
	d.size = size
	if len(files) > 1 {
		d.index = newIndex(size)
	}
	return d, nil
}

// newLayer opens a layer. What is known of a file in the same file system need not
// be found out again: a pile of a hundred is opened with a call for each.
func newLayer(f *os.File, write bool, known []layer) (layer, error) {
	l := layer{file: f, fd: int(f.Fd())}
	var st unix.Stat_t
	if err := unix.Fstat(l.fd, &st); err != nil {
		return layer{}, fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return layer{}, fmt.Errorf("not a regular file: %w", ErrLayers)
	}
	l.id, l.size = identity{st.Dev, st.Ino}, st.Size
	if write {
		flags, err := unix.FcntlInt(uintptr(l.fd), unix.F_GETFL, 0)
		if err != nil {
			return layer{}, fmt.Errorf("get flags: %w", err)
		}
		if flags&unix.O_ACCMODE != unix.O_RDWR {
			return layer{}, fmt.Errorf("not open for reading and writing: %w", ErrLayers)
		}
	}
	if n := len(known); n > 0 && known[n-1].id.device == l.id.device {
		l.tryFlags, l.canTry = known[n-1].tryFlags, known[n-1].canTry
		return l, nil
	}
	return l, l.probe()
}

// identity tells files apart.
type identity struct{ device, inode uint64 }

// probe finds out how to read without blocking.
func (l *layer) probe() error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(l.fd, &fs); err != nil {
		return fmt.Errorf("stat file system: %w", err)
	}
	if fs.Type == unix.TMPFS_MAGIC {
		l.canTry = true // tmpfs refuses RWF_NOWAIT, and has no need of it
		return nil
	}
	var v Vector
	v.Add(make([]byte, 1))
	_, errno := vectored(fromFile, l.fd, v.iov, 0, unix.RWF_NOWAIT)
	if errno != unix.EOPNOTSUPP {
		l.canTry, l.tryFlags = true, unix.RWF_NOWAIT
	}
	return nil
}

// empty says whether the file has no data, only a hole or nothing at all.
func (l layer) empty() (bool, error) {
	_, err := unix.Seek(l.fd, 0, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return true, nil
	}
	return false, err
}

// Size is the disk's size in bytes.
func (d *Disk) Size() int64 { return d.size }

// ReadOnly says whether writes are refused.
func (d *Disk) ReadOnly() bool { return d.readOnly }

// top is the layer that is written.
func (d *Disk) top() *layer { return &d.layers[len(d.layers)-1] }

// Sync returns when everything written so far is on stable storage.
func (d *Disk) Sync() error {
	if d.readOnly {
		return nil
	}
	for {
		err := unix.Fdatasync(d.top().fd)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("disk: sync: %w", err)
		}
	}
}

// inRange says whether n bytes at off are within the disk.
func (d *Disk) inRange(off, n int64) bool {
	return off >= 0 && n >= 0 && off <= d.size && n <= d.size-off
}

// transfer moves the next n bytes of v from or to the file at off, whatever
// the number of system calls.
func (l *layer) transfer(dir direction, v *Vector, off, n int64, flags int) error {
	for n > 0 {
		got, errno := v.do(dir, l.fd, off, min(n, math.MaxInt32&^(BlockSize-1)), flags)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return errno
		case got == 0:
			// Sizes were checked when the file was opened; somebody cut it.
			return io.ErrUnexpectedEOF
		default:
			off += int64(got)
			n -= int64(got)
		}
	}
	return nil
}
