package disk

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Read fills v from the disk, from offset off on.
func (d *Disk) Read(v *Vector, off int64) error {
	return d.read(v, off, false)
}

// TryRead is Read from memory: it returns ErrWouldBlock as soon as bytes would
// have to come from a device. Then v has taken what was there, and Read goes
// on at off + v.Done(). The kernel has begun to read ahead.
func (d *Disk) TryRead(v *Vector, off int64) error {
	return d.read(v, off, true)
}

func (d *Disk) read(v *Vector, off int64, try bool) error {
	if !d.inRange(off, v.Len()) {
		return ErrOutOfRange
	}
	if d.index == nil {
		return d.layers[0].read(v, off, v.Len(), try)
	}
	for v.Len() > 0 {
		o, n := d.index.run(off, v.Len())
		if o.zero() {
			v.zero(n)
		} else if err := d.layers[o.layer()].read(v, off, n, try); err != nil {
			return err
		}
		off += n
	}
	return nil
}

func (l *layer) read(v *Vector, off, n int64, try bool) error {
	flags := 0
	if try {
		if !l.canTry {
			return ErrWouldBlock
		}
		flags = l.tryFlags
	}
	err := l.transfer(fromFile, v, off, n, flags)
	if err == nil {
		return nil
	}
	if try && errors.Is(err, unix.EAGAIN) {
		return ErrWouldBlock
	}
	return fmt.Errorf("disk: read %d bytes at %d: %w", n, off, err)
}

// Write puts v on the disk, from offset off on; sync makes it durable before
// Write returns.
func (d *Disk) Write(v *Vector, off int64, sync bool) error {
	n := v.Len()
	switch {
	case d.readOnly:
		return ErrReadOnly
	case !d.inRange(off, n):
		return ErrOutOfRange
	case n == 0:
		return nil
	}
	if d.index != nil {
		if err := d.copyUpEdges(off, n); err != nil {
			return err
		}
	}
	flags := 0
	if sync {
		flags = unix.RWF_DSYNC
	}
	if err := d.top().transfer(toFile, v, off, n, flags); err != nil {
		return fmt.Errorf("disk: write %d bytes at %d: %w", n, off, err)
	}
	if d.index != nil {
		d.claim(off, off+n, dataIn(len(d.layers)-1))
	}
	return nil
}

// claim makes o the owner of the blocks that hold the bytes from start to end.
// It comes after the bytes: a reader sees the old block or the whole new one.
func (d *Disk) claim(start, end int64, o owner) {
	for block := start / BlockSize; block*BlockSize < end; block++ {
		d.index.claim(block, o)
	}
}

// copyUpEdges makes the top own the first and the last block of a transfer
// where it covers only a part of them.
func (d *Disk) copyUpEdges(off, n int64) error {
	end := off + n
	if off%BlockSize != 0 {
		if err := d.copyUp(off / BlockSize); err != nil {
			return err
		}
	}
	if end%BlockSize != 0 && end != d.size {
		return d.copyUp(end / BlockSize)
	}
	return nil
}

// copyUp copies a block from the layer that has it to the top.
func (d *Disk) copyUp(block int64) error {
	top := dataIn(len(d.layers) - 1)
	if d.index.owner(block) == top {
		return nil
	}
	off := block * BlockSize
	buf := d.scratch[:min(BlockSize, d.size-off)]
	var v Vector
	v.Add(buf)
	if err := d.Read(&v, off); err != nil {
		return err
	}
	v.Reset()
	v.Add(buf)
	if err := d.top().transfer(toFile, &v, off, v.Len(), 0); err != nil {
		return fmt.Errorf("disk: copy up block %d: %w", block, err)
	}
	d.index.claim(block, top)
	return nil
}

// Zero makes n bytes from offset off on read as zeros, and gives their space
// back to the host.
func (d *Disk) Zero(off, n int64) error {
	switch {
	case d.readOnly:
		return ErrReadOnly
	case !d.inRange(off, n):
		return ErrOutOfRange
	case n == 0:
		return nil
	}
	if d.index == nil {
		return d.punch(off, n)
	}
	start, end := (off+BlockSize-1)/BlockSize*BlockSize, (off+n)/BlockSize*BlockSize
	if off+n == d.size {
		end = d.size // the last block may be a short one
	}
	if start >= end {
		return d.writeZeros(off, n)
	}
	if err := d.writeZeros(off, start-off); err != nil {
		return err
	}
	if err := d.writeZeros(end, off+n-end); err != nil {
		return err
	}
	d.claim(start, end, zeroIn(len(d.layers)-1))
	// The index says zero already; this only saves space, and a file system
	// that cannot do it loses nothing else.
	_ = d.fallocate(start, end-start)
	return nil
}

// punch makes a hole in a single file, or writes zeros where the file system
// has no holes.
func (d *Disk) punch(off, n int64) error {
	err := d.fallocate(off, n)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return d.writeZeros(off, n)
	}
	if err != nil {
		return fmt.Errorf("disk: punch %d bytes at %d: %w", n, off, err)
	}
	return nil
}

func (d *Disk) fallocate(off, n int64) error {
	for {
		err := unix.Fallocate(d.top().fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// zeros is what writeZeros writes from.
var zeros [64 << 10]byte

func (d *Disk) writeZeros(off, n int64) error {
	var v Vector
	for n > 0 {
		k := min(n, int64(len(zeros)))
		v.Reset()
		v.Add(zeros[:k])
		if err := d.Write(&v, off, false); err != nil {
			return err
		}
		off += k
		n -= k
	}
	return nil
}
