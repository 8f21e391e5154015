package protect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"thaw/internal/pagemap"
	"thaw/internal/uffd"
	"thaw/internal/unixfd"
)

const pageSize = pagemap.PageSize

// sweepPages is how many pages are copied between two looks at who waits.
const sweepPages = 16

// server is a handler at work.
type server struct {
	conn   *os.File // to the VMM
	memory *os.File // the VMM's, /proc/PID/mem
	fd     *uffd.FD // nil until begin
	area   uffd.Range
	list   []pagemap.Range // from opPages
	stage  *staging        // nil: nothing is to be copied
	faults []uint64
	buf    []byte // of one message
}

// Serve answers the VMM at the other end of conn, whose /proc/PID/mem memory is, until it
// has closed its end. Both files stay the caller's.
func Serve(conn, memory *os.File) error {
	s := &server{conn: conn, memory: memory, buf: make([]byte, maxMessage)}
	defer s.end()
	number, err := unixfd.Number(conn)
	if err != nil {
		return err
	}
	for {
		wait := -1
		if s.stage != nil {
			wait = 0
		}
		fds := []unix.PollFd{{Fd: int32(number), Events: unix.POLLIN}}
		if s.fd != nil {
			fds = append(fds, unix.PollFd{Fd: int32(s.fd.Fd()), Events: unix.POLLIN})
		}
		if err := poll(fds, wait); err != nil {
			return fmt.Errorf("protect: wait: %w", err)
		}
		// Who waits goes first.
		if len(fds) > 1 && fds[1].Revents != 0 {
			err = s.answerFaults()
		} else if fds[0].Revents != 0 {
			if err = s.receive(); errors.Is(err, io.EOF) {
				return nil
			}
		} else if s.stage != nil {
			err = s.sweep()
		}
		if err != nil {
			// The VMM learns why, if it still listens, and the kernel lets go of
			// all who wait when we end.
			_ = unixfd.Send(conn, append([]byte{answerError}, err.Error()...))
			return err
		}
	}
}

// poll is not cut short by signals.
func poll(fds []unix.PollFd, wait int) error {
	var timeout *unix.Timespec
	if wait >= 0 {
		timeout = new(unix.Timespec)
	}
	for {
		if _, err := unix.Ppoll(fds, timeout, nil); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (s *server) end() {
	if s.fd != nil {
		s.fd.Close()
	}
	s.stage.close()
}

func (s *server) receive() error {
	n, files, err := unixfd.Recv(s.conn, s.buf, 1)
	if err != nil {
		return err
	}
	var file *os.File
	if len(files) > 0 {
		file = files[0]
		defer func() {
			if file != nil {
				file.Close()
			}
		}()
	}
	if n == 0 {
		return errors.New("protect: empty message")
	}
	op, b := s.buf[0], s.buf[1:n]
	switch {
	case op == opBegin && file != nil && s.fd == nil && len(b) == 16:
		return s.begin(uffd.Range{Start: binary.LittleEndian.Uint64(b), Length: binary.LittleEndian.Uint64(b[8:])}, file)
	case op == opPages && file == nil && s.fd != nil:
		s.list, err = parseRanges(s.list, b, s.area.Length/pageSize)
		return err
	case op == opEnd && file == nil && s.fd != nil && s.stage == nil && len(b) == 0:
		err := s.fd.Close()
		s.fd = nil
		if err != nil {
			return err
		}
		return s.answer(answerOK)
	case op == opProtect && file == nil && s.fd != nil && len(b) == 0:
		return s.protect()
	case op == opStage && file != nil && s.fd != nil && s.stage == nil && len(b) == 0:
		// Before the first fault can come.
		s.stage = newStaging(s.list, file)
		file = nil
		return s.protect()
	}
	return fmt.Errorf("protect: operation %d with %d bytes and %d files has no place here", op, len(b), len(files))
}

// begin takes a new userfaultfd.
func (s *server) begin(area uffd.Range, file *os.File) error {
	if area.Start%pageSize != 0 || area.Length%pageSize != 0 || area.Start+area.Length < area.Start {
		return fmt.Errorf("protect: memory of %d bytes at %#x", area.Length, area.Start)
	}
	number, err := unixfd.Number(file)
	if err != nil {
		return err
	}
	number, err = unix.FcntlInt(uintptr(number), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("protect: duplicate userfaultfd: %w", err)
	}
	fd, err := uffd.Use(number, Features)
	if err != nil {
		unix.Close(number)
		return err
	}
	s.fd, s.area = fd, area
	if err := fd.Register(area); err != nil {
		return err
	}
	return s.answer(answerOK)
}

func (s *server) protect() error {
	for _, r := range s.list {
		if err := s.fd.Protect(s.part(r)); err != nil {
			return err
		}
	}
	s.list = s.list[:0]
	return s.answer(answerOK)
}

func (s *server) part(r pagemap.Range) uffd.Range {
	return uffd.Range{Start: s.area.Start + uint64(r.First)*pageSize, Length: uint64(r.Count) * pageSize}
}

func (s *server) answer(a byte) error { return unixfd.Send(s.conn, []byte{a}) }

// answerFaults lets writes through, each after its page has been copied if it is to be.
func (s *server) answerFaults() error {
	var err error
	if s.faults, err = s.fd.Faults(s.faults[:0]); err != nil {
		return err
	}
	for _, at := range s.faults {
		if at-s.area.Start >= s.area.Length {
			return fmt.Errorf("protect: fault at %#x, outside of the memory", at)
		}
		page := pagemap.Range{First: uint32((at - s.area.Start) / pageSize), Count: 1}
		if s.stage != nil {
			if err := s.stage.copyOne(page.First, s.memory, s.area.Start); err != nil {
				return err
			}
		}
		if err := s.fd.Release(s.part(page)); err != nil {
			return err
		}
	}
	return nil
}

// sweep copies the next pages that nobody waits for.
func (s *server) sweep() error {
	more, err := s.stage.copyNext(s.memory, s.area.Start)
	if err != nil || more {
		return err
	}
	s.stage.close()
	s.stage = nil
	return s.answer(answerStaged)
}
