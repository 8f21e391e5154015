package unixfd

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Recv receives one message of at most len(buf) bytes and maxFiles descriptors (0 to [MaxFiles]). The files
// belong to the caller. On a stream socket a message is whatever one read gives.
//
// It returns io.EOF when the peer has closed, and a *[MessageError] when the message broke a bound.
func Recv(c syscall.Conn, buf []byte, maxFiles int) (n int, files []*os.File, err error) {
	if len(buf) == 0 || maxFiles < 0 || maxFiles > MaxFiles {
		return 0, nil, fmt.Errorf("unixfd: receive message into %d bytes and %d descriptors: %w", len(buf), maxFiles, io.ErrShortBuffer)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, nil, fmt.Errorf("unixfd: receive message: %w", err)
	}
	var oob []byte
	if maxFiles > 0 {
		oob = make([]byte, unix.CmsgSpace(4*maxFiles))
	}
	var oobn, flags int
	var recvErr error
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, recvErr = unix.Recvmsg(int(fd), buf, oob, unix.MSG_CMSG_CLOEXEC)
			if recvErr != unix.EINTR {
				return recvErr != unix.EAGAIN
			}
		}
	})
	if err == nil {
		err = recvErr
	}
	if err != nil {
		return 0, nil, fmt.Errorf("unixfd: receive message: %w", err)
	}

	fds, control := parseRights(oob[:oobn])
	if bad := judge(n, len(fds), maxFiles, flags, control); bad != nil {
		// The kernel has put them into our table already, whatever is wrong with the rest.
		for _, fd := range fds {
			unix.Close(fd)
		}
		return 0, nil, bad
	}
	if n == 0 {
		return 0, nil, io.EOF
	}
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "received:"+strconv.Itoa(fd)))
	}
	return n, files, nil
}

// judge says what is wrong with a received message, or nil.
func judge(n, files, maxFiles, flags int, control error) error {
	var err error
	switch {
	case flags&unix.MSG_TRUNC != 0:
		err = ErrTruncated
	case flags&unix.MSG_CTRUNC != 0, files > maxFiles:
		// Control buffers are aligned, so one descriptor more than asked for may fit.
		err = ErrTooManyFiles
	case control != nil:
		err = control
	case n == 0 && files > 0:
		err = io.ErrUnexpectedEOF
	default:
		return nil
	}
	return &MessageError{Bytes: n, Files: files, Err: err}
}

// parseRights returns every descriptor in the control data, also when other parts of it are bad.
func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, ErrUnexpectedControl
	}
	var fds []int
	var bad error
	for i := range msgs {
		// ParseUnixRights panics on a cut descriptor (x/sys v0.50.0). The kernel
		// sends none, but these bytes decide about the daemon.
		if len(msgs[i].Data)%4 != 0 {
			bad = ErrUnexpectedControl
			continue
		}
		got, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			bad = ErrUnexpectedControl
			continue
		}
		fds = append(fds, got...)
	}
	return fds, bad
}
