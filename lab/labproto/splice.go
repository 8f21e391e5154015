package labproto

import (
	"io"
	"sync"
)

// Splice copies bytes both ways between a and b until both directions have
// ended, passing each end of stream on, and closes both.
func Splice(a, b io.ReadWriteCloser) {
	var wg sync.WaitGroup
	wg.Go(func() { copyHalf(a, b) })
	wg.Go(func() { copyHalf(b, a) })
	wg.Wait()
	a.Close()
	b.Close()
}

// copyHalf copies one direction. After the source's end, the destination is
// told so; after an error the other direction can not go on either.
func copyHalf(dst, src io.ReadWriteCloser) {
	if _, err := io.Copy(dst, src); err != nil {
		src.Close()
		dst.Close()
		return
	}
	if c, ok := dst.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
		return
	}
	// A yamux stream's Close ends only its own direction.
	dst.Close()
}
