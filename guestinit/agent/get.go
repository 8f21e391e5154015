package agent

import (
	"errors"
	"fmt"
	"io"
	"os"

	"thaw/guestinit/agentproto"
)

// get sends one regular file, then its facts.
func (c *conn) get(payload []byte) error {
	var req agentproto.GetRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	fd, st, err := c.s.openRegular(req.Path)
	if err != nil {
		return c.sendError(err)
	}
	f := os.NewFile(uintptr(fd), req.Path)
	defer f.Close()
	if st.Size > req.Max {
		return c.sendError(tooLarge(req))
	}
	buf := c.s.buffers.Get().(*buffer)
	defer c.s.buffers.Put(buf)
	info := fileInfo(req.Path, &st)
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
