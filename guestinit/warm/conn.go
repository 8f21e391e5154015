package warm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Stream is the agent's end of a control socket.
type Stream interface {
	io.ReadWriter
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// writePatience is how long an interpreter may take to make room for a
// message. Those that matter for time fit into the socket.
const writePatience = 5 * time.Second

// Conn speaks with one interpreter over its control socket: frames of a
// little-endian u32 length and so many bytes of JSON.
//
//	agent ──▶ generation, run, cell       ready, generation, run, cell ──▶ agent
//
// The job has the other end, and can write there what it wants. Nothing is
// read but where an answer is awaited, so an interpreter that writes without
// end fills its socket and waits; answers that were not asked for are skipped,
// up to a bound. Not safe for concurrent use, but for sending beside Receive.
type Conn struct {
	s   Stream
	buf []byte
}

// NewConn returns a Conn on s.
func NewConn(s Stream) *Conn { return &Conn{s: s} }

// SendGeneration sends a generation. It does not wait for a frozen interpreter
// to read it.
func (c *Conn) SendGeneration(g Generation) error {
	b := append(c.begin(), `{"op":"generation"`...)
	return c.send(append(appendGeneration(b, &g), '}'))
}

// appendGeneration appends the fields of a generation, or nothing for nil.
func appendGeneration(b []byte, g *Generation) []byte {
	if g == nil {
		return b
	}
	b = append(b, `,"number":`...)
	b = strconv.AppendUint(b, g.Number, 10)
	b = append(b, `,"seed":"`...)
	b = hex.AppendEncode(b, g.Seed)
	return append(b, '"')
}

// SendJob sends a job.
func (c *Conn) SendJob(j Job) error {
	b := append(c.begin(), `{"op":"run","argv":`...)
	b = append(appendList(b, j.Argv), `,"env":`...)
	b = append(appendList(b, j.Env), `,"cwd":`...)
	b = append(appendJSON(b, j.Cwd), `,"stdin":`...)
	b = append(strconv.AppendBool(b, j.Stdin), `,"cold":`...)
	b = appendGeneration(appendJSON(b, j.Cold), j.Generation)
	return c.send(append(b, '}'))
}

// SendCell sends a cell.
func (c *Conn) SendCell(cell Cell) error {
	b := append(c.begin(), `{"op":"cell","id":`...)
	b = append(strconv.AppendUint(b, cell.ID, 10), `,"source":`...)
	b = appendGeneration(appendJSON(b, cell.Source), cell.Generation)
	return c.send(append(b, '}'))
}

// begin returns a buffer with room for the length.
func (c *Conn) begin() []byte { return make([]byte, 4, 1024) }

func (c *Conn) send(b []byte) error {
	if len(b)-4 > MaxSent {
		return fmt.Errorf("warm: message of %d bytes is over the bound of %d", len(b)-4, MaxSent)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	if err := c.s.SetWriteDeadline(time.Now().Add(writePatience)); err != nil {
		return fmt.Errorf("warm: send message: %w", err)
	}
	if _, err := c.s.Write(b); err != nil {
		return fmt.Errorf("warm: send message: %w", err)
	}
	return nil
}

// maxSkipped bounds the answers that are skipped for one that is awaited.
const maxSkipped = 4096

// Receive waits until the deadline (zero: for ever) for an answer that accept
// takes; others are skipped.
func (c *Conn) Receive(deadline time.Time, accept func(Answer) bool) (Answer, error) {
	if err := c.s.SetReadDeadline(deadline); err != nil {
		return Answer{}, fmt.Errorf("warm: receive answer: %w", err)
	}
	for range maxSkipped {
		a, err := c.next()
		if err != nil {
			return Answer{}, err
		}
		if accept(a) {
			return a, nil
		}
	}
	return Answer{}, fmt.Errorf("warm: %d answers that nobody asked for: %w", maxSkipped, ErrProtocol)
}

// next reads one frame.
func (c *Conn) next() (Answer, error) {
	var header [4]byte
	if _, err := io.ReadFull(c.s, header[:]); err != nil {
		return Answer{}, fmt.Errorf("warm: receive answer: %w", err)
	}
	n := binary.LittleEndian.Uint32(header[:])
	if n > MaxReceived {
		return Answer{}, fmt.Errorf("warm: answer of %d bytes is over the bound of %d: %w", n, MaxReceived, ErrProtocol)
	}
	if int(n) > cap(c.buf) {
		c.buf = make([]byte, n)
	}
	body := c.buf[:n]
	if _, err := io.ReadFull(c.s, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Answer{}, fmt.Errorf("warm: receive answer: %w", err)
	}
	a, err := decode(body)
	if cap(c.buf) > 64<<10 {
		c.buf = nil // one large result is no reason to keep its room
	}
	return a, err
}
