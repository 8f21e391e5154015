package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxEvent bounds one server-sent event, in bytes: a job's result with all its
// artifacts is the largest.
const maxEvent = 16 << 20

var errEventTooLarge = errors.New("client: server-sent event is too large")

// event is one server-sent event.
type event struct {
	id   uint64 // 0 when it had none
	name string
	data []byte
}

// sseReader parses a stream of server-sent events (HTML standard §9.2.6), as far
// as the daemon uses it: fields id, event and data, comments, and lines that end
// in LF or CRLF.
type sseReader struct {
	r *bufio.Reader
}

func newSSEReader(r io.Reader) *sseReader { return &sseReader{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next event that has data. At the end of the stream it returns
// io.EOF; an event that was not finished then is dropped, as the standard says.
func (s *sseReader) next() (event, error) {
	var e event
	hasData := false
	for {
		line, err := s.line(maxEvent)
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if hasData {
				return e, nil
			}
			e = event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if len(e.data)+len(value) >= maxEvent {
				return event{}, errEventTooLarge
			}
			if hasData {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
			hasData = true
		case "event":
			e.name = string(value)
		case "id":
			// An id that is no number is none of the daemon's: leave the last one standing.
			if id, err := strconv.ParseUint(string(value), 10, 64); err == nil {
				e.id = id
			}
		}
	}
}

// line returns one line without its end. It is valid until the next call.
func (s *sseReader) line(limit int) ([]byte, error) {
	line, err := s.r.ReadSlice('\n')
	if err == nil {
		return trimEnd(line), nil
	}
	if !errors.Is(err, bufio.ErrBufferFull) {
		return nil, eof(err)
	}
	long := bytes.Clone(line)
	for {
		line, err = s.r.ReadSlice('\n')
		if len(long)+len(line) > limit {
			return nil, errEventTooLarge
		}
		long = append(long, line...)
		switch {
		case err == nil:
			return trimEnd(long), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, eof(err)
		}
	}
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

func eof(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return fmt.Errorf("client: read events: %w", err)
}
