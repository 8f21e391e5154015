package agent

import (
	"errors"
	"fmt"
	"io"

	"thaw/guestinit/agentproto"
)

// put receives one file. The data frames follow the request at once, without
// an answer between; after a failure those on the way are skipped by handle.
func (c *conn) put(payload []byte) error {
	var req agentproto.PutRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	t, err := c.s.files.Receive(req)
	if err != nil {
		return c.sendError(err)
	}
	defer t.Abort()
	for end := false; !end; {
		f, err := c.r.Next()
		if err != nil {
			return err
		}
		if f.Type != agentproto.FramePutData {
			return fmt.Errorf("agent: %s frame within a put: %w", f.Type, agentproto.ErrProtocol)
		}
		if err := t.Write(f.Payload); err != nil {
			return c.sendError(err)
		}
		end = f.Flags&agentproto.FlagEnd != 0
	}
	if err := t.Commit(); err != nil {
		return c.sendError(err)
	}
	return c.send(agentproto.FrameOK, nil)
}

// get sends one regular file, then its facts.
func (c *conn) get(payload []byte) error {
	var req agentproto.GetRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	f, info, err := c.s.files.Open(req.Path)
	if err != nil {
		return c.sendError(err)
	}
	defer f.Close()
	if info.Size > req.Max {
		return c.sendError(tooLarge(req))
	}
	buf := c.s.buffers.Get().(*buffer)
	defer c.s.buffers.Put(buf)
	info.Size = 0 // becomes what was sent: the job may be writing still
	for {
		n, err := f.Read(buf[agentproto.HeaderSize:])
		if info.Size += int64(n); info.Size > req.Max {
			return c.sendError(tooLarge(req))
		}
		if n > 0 {
			if err := c.sendBuffer(agentproto.FrameFileData, 0, buf, n); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return c.send(agentproto.FrameOK, info)
		}
		if err != nil {
			return c.sendError(fmt.Errorf("agent: read %q: %w", req.Path, err))
		}
	}
}

func tooLarge(req agentproto.GetRequest) error {
	return &agentproto.Error{
		Code: agentproto.CodeTooLarge, Message: fmt.Sprintf("%q has more than %d bytes", req.Path, req.Max),
	}
}

// list sends the facts of everything below a directory.
func (c *conn) list(payload []byte) error {
	var req agentproto.ListRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	if req.Depth == 0 {
		req.Depth = agentproto.MaxListDepth
	}
	b := entries{c: c}
	truncated, err := c.s.files.Walk(req.Dir, req.Max, int(req.Depth), b.add)
	if err != nil {
		return c.sendError(err)
	}
	if err := b.flush(); err != nil {
		return err
	}
	return c.send(agentproto.FrameOK, agentproto.ListEnd{Truncated: truncated})
}

// entries gathers facts of files into frames.
type entries struct {
	c     *conn
	batch agentproto.Entries
	size  int // of the batch on the wire, roughly
}

// entrySize is an upper bound of an entry's encoding without its path.
const entrySize = 96

// add queues one entry and sends the batch before it outgrows a frame.
func (b *entries) add(info agentproto.FileInfo) error {
	n := entrySize + len(info.Path)
	if b.size+n > agentproto.MaxPayload-64 {
		if err := b.flush(); err != nil {
			return err
		}
	}
	b.batch.Files = append(b.batch.Files, info)
	b.size += n
	return nil
}

func (b *entries) flush() error {
	if len(b.batch.Files) == 0 {
		return nil
	}
	err := b.c.send(agentproto.FrameEntries, b.batch)
	b.batch.Files, b.size = b.batch.Files[:0], 0
	return err
}
