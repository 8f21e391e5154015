package unixfd

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Send sends b with files. The caller keeps its files and may close them when Send returns.
//
// On a stream socket the descriptors travel with the first byte, and Send goes on until all of b is written.
// b must not be empty: a message without bytes could not be told from the end of the connection.
func Send(c syscall.Conn, b []byte, files ...*os.File) error {
	if len(b) == 0 {
		return fmt.Errorf("unixfd: send message: %w", io.ErrShortBuffer)
	}
	if len(files) > MaxFiles {
		return fmt.Errorf("unixfd: send %d descriptors: %w", len(files), ErrTooManyFiles)
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fd, err := Number(f)
			if err != nil {
				return err
			}
			fds[i] = fd
		}
		oob = unix.UnixRights(fds...)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("unixfd: send message: %w", err)
	}
	var sendErr error
	err = raw.Write(func(fd uintptr) bool {
		for len(b) > 0 {
			n, err := unix.SendmsgN(int(fd), b, oob, nil, unix.MSG_NOSIGNAL)
			switch err {
			case nil:
				b, oob = b[n:], nil
			case unix.EINTR:
			case unix.EAGAIN:
				return false
			default:
				sendErr = err
				return true
			}
		}
		return true
	})
	// The numbers in oob are good only while the files are open.
	runtime.KeepAlive(files)
	if err == nil {
		err = sendErr
	}
	if err != nil {
		return fmt.Errorf("unixfd: send message: %w", err)
	}
	return nil
}
