package disk

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Vector is a list of buffers for one transfer, and how much of it is done.
// It is used again and again, so that a transfer allocates nothing: the
// wrappers in x/sys/unix take [][]byte and make a new array in each call with
// more than eight buffers.
type Vector struct {
	iov  []unix.Iovec
	next int   // the first buffer that is not done
	left int64 // bytes not done
	done int64
}

// Reset empties the list.
func (v *Vector) Reset() {
	v.iov, v.next, v.left, v.done = v.iov[:0], 0, 0, 0
}

// Add appends a buffer.
func (v *Vector) Add(b []byte) {
	if len(b) == 0 {
		return
	}
	v.iov = append(v.iov, unix.Iovec{Base: unsafe.SliceData(b), Len: uint64(len(b))})
	v.left += int64(len(b))
}

// Len is the number of bytes that are still to be moved.
func (v *Vector) Len() int64 { return v.left }

// Done is the number of bytes that were moved.
func (v *Vector) Done() int64 { return v.done }

// direction is the system call of a transfer.
type direction uintptr

const (
	fromFile direction = unix.SYS_PREADV2
	toFile   direction = unix.SYS_PWRITEV2
)

// do makes one system call for at most the next n bytes and takes off what it
// moved. Preconditions: 0 < n <= v.Len().
func (v *Vector) do(dir direction, fd int, off, n int64, flags int) (int, unix.Errno) {
	iov := v.iov[v.next:min(len(v.iov), v.next+maxVector)]
	var got int
	var errno unix.Errno
	if n == v.left {
		got, errno = vectored(dir, fd, iov, off, flags)
	} else {
		// The buffer in which the n bytes end is cut for the call.
		last, within := 0, n
		for last < len(iov)-1 && within > int64(iov[last].Len) {
			within -= int64(iov[last].Len)
			last++
		}
		whole := iov[last].Len
		iov[last].Len = min(whole, uint64(within))
		got, errno = vectored(dir, fd, iov[:last+1], off, flags)
		iov[last].Len = whole
	}
	if errno == 0 {
		v.advance(int64(got))
	}
	return got, errno
}

// maxVector is how many buffers the kernel takes at once (IOV_MAX).
const maxVector = 1024

// advance takes n bytes off the front.
func (v *Vector) advance(n int64) {
	v.left -= n
	v.done += n
	for n > 0 {
		e := &v.iov[v.next]
		if n < int64(e.Len) {
			e.Base = (*byte)(unsafe.Add(unsafe.Pointer(e.Base), n))
			e.Len -= uint64(n)
			return
		}
		n -= int64(e.Len)
		v.next++
	}
}

// zero fills the next n bytes with zeros and takes them off.
func (v *Vector) zero(n int64) {
	for n > 0 {
		e := v.iov[v.next]
		k := min(n, int64(e.Len))
		clear(unsafe.Slice(e.Base, k))
		v.advance(k)
		n -= k
	}
}

// vectored makes one system call. On 64-bit machines the kernel takes the
// whole offset from the first of its two halves.
func vectored(dir direction, fd int, iov []unix.Iovec, off int64, flags int) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(uintptr(dir), uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))),
		uintptr(len(iov)), uintptr(off), 0, uintptr(flags))
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}
