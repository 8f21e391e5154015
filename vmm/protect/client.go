package protect

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/pagemap"
	"thaw/internal/uffd"
	"thaw/internal/unixfd"
)

// limit is how long the handler may take for an answer; for copying, without a sign of
// life, too.
const limit = 10 * time.Second

// Client is a VMM's side. It is not for use by several goroutines.
type Client struct {
	conn *os.File
}

// Begin has the handler at the other end of conn, a socket of unixfd.Pair, care for mem,
// which is memory of this process. device is an open uffd.Device. Both stay the caller's.
func Begin(conn, device *os.File, mem []byte) (*Client, error) {
	number, err := uffd.Make(device)
	if err != nil {
		return nil, err
	}
	// It is sent away and closed: see the package comment.
	fd := os.NewFile(uintptr(number), "userfaultfd")
	defer fd.Close()
	c := &Client{conn: conn}
	r := uffd.Of(mem)
	b := binary.LittleEndian.AppendUint64([]byte{opBegin}, r.Start)
	if err := c.ask(binary.LittleEndian.AppendUint64(b, r.Length), fd); err != nil {
		return nil, err
	}
	return c, nil
}

// Protect protects pages, given in ascending order.
func (c *Client) Protect(list []pagemap.Range) error {
	if err := c.sendRanges(list); err != nil {
		return err
	}
	return c.ask([]byte{opProtect})
}

// Stage protects pages, given in ascending order, and has their content of this instant
// copied to file, one after the other, from then on. Staged must be called next.
// Preconditions: nothing writes to them until Stage returns.
func (c *Client) Stage(list []pagemap.Range, file *os.File) error {
	if err := c.sendRanges(list); err != nil {
		return err
	}
	return c.ask([]byte{opStage}, file)
}

// End ends all protection. The handler waits for another Begin.
func (c *Client) End() error { return c.ask([]byte{opEnd}) }

// Staged returns when all pages have been copied.
func (c *Client) Staged() error { return c.await(answerStaged) }

func (c *Client) sendRanges(list []pagemap.Range) error {
	for len(list) > 0 {
		n := min(len(list), rangesPerMessage)
		if err := c.send(appendRanges([]byte{opPages}, list[:n])); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

func (c *Client) ask(b []byte, files ...*os.File) error {
	if err := c.send(b, files...); err != nil {
		return err
	}
	return c.await(answerOK)
}

func (c *Client) send(b []byte, files ...*os.File) error {
	c.conn.SetDeadline(time.Now().Add(limit))
	if err := unixfd.Send(c.conn, b, files...); err != nil {
		return fmt.Errorf("protect: send to handler: %w: %w", err, ErrHandler)
	}
	return nil
}

// await takes the answer that is due.
func (c *Client) await(want byte) error {
	c.conn.SetDeadline(time.Now().Add(limit))
	buf := make([]byte, maxMessage)
	n, _, err := unixfd.Recv(c.conn, buf, 0)
	switch {
	case err != nil:
		return fmt.Errorf("protect: receive from handler: %w: %w", err, ErrHandler)
	case n > 0 && buf[0] == answerError:
		return fmt.Errorf("protect: handler says: %.200q: %w", buf[1:n], ErrHandler)
	case n != 1 || buf[0] != want:
		return fmt.Errorf("protect: answer %d of %d bytes, want %d: %w", buf[0], n, want, unix.EPROTO)
	}
	return nil
}
