package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"

	"thaw/guestinit/agentproto"
)

// ErrTruncated is returned by ListFiles together with the entries up to the
// bound that was met.
var ErrTruncated = errors.New("agentclient: listing is not complete")

// maxListBytes bounds the paths of one listing, which the guest chooses and the
// caller's memory holds.
const maxListBytes = 16 << 20

var errListBytes = errors.New("agent listed too many bytes of paths")

// chunk is the payload of one data frame.
const chunk = agentproto.MaxPayload

// PutFile writes r to a file below /workspace, making its parents. The file
// appears under its name only if all of it arrived; on any error nothing is
// left. size is checked by the agent; -1 if it is not known.
func (c *Client) PutFile(ctx context.Context, path string, mode uint32, size int64, r io.Reader) error {
	req := agentproto.PutRequest{Path: path, Mode: mode & 0o777, Size: size}
	if err := req.Validate(); err != nil {
		return fmt.Errorf("agentclient: put %q: %w: %w", path, agentproto.ErrBadRequest, err)
	}
	return c.exchange(ctx, agentproto.FramePut, req, func(cn *conn) error {
		answer := make(chan error, 1)
		go func() { answer <- cn.ok(nil) }()
		answered, sendErr := cn.sendFile(r, answer)
		if answered {
			return sendErr
		}
		if sendErr != nil {
			// The agent drops the file when the connection goes. Its answer,
			// if it gave one, says more than a broken pipe does.
			cn.nc.Close()
			var reported *agentproto.Error
			if err := <-answer; errors.As(err, &reported) && errors.Is(sendErr, errWrite) {
				return fmt.Errorf("%w (connection lost: %v)", reported, sendErr)
			}
			return sendErr
		}
		return <-answer
	})
}

var errWrite = errors.New("write to agent")

// sendFile sends the data frames until the end of r, or until the agent
// answers early, as it does when the disk is full; then answered is true and
// the error is the agent's.
func (cn *conn) sendFile(r io.Reader, answer <-chan error) (answered bool, err error) {
	buf := make([]byte, chunk)
	for {
		n, readErr := io.ReadFull(r, buf)
		end := errors.Is(readErr, io.EOF) || errors.Is(readErr, io.ErrUnexpectedEOF)
		if readErr != nil && !end {
			return false, fmt.Errorf("read source: %w", readErr)
		}
		select {
		case err := <-answer:
			if err == nil {
				err = fmt.Errorf("agent took the file before its end: %w", agentproto.ErrProtocol)
			}
			return true, err
		default:
		}
		flags := uint8(0)
		if end {
			flags = agentproto.FlagEnd
		}
		if err := cn.sendData(agentproto.FramePutData, flags, buf[:n]); err != nil {
			return false, fmt.Errorf("%w: %w", errWrite, err)
		}
		if end {
			return false, nil
		}
	}
}

// GetFile copies a regular file below /workspace to w. A file of more than
// max bytes is refused with agentproto.ErrTooLarge; w may have got a part of
// it if it grew meanwhile.
func (c *Client) GetFile(ctx context.Context, path string, w io.Writer, max int64) (agentproto.FileInfo, error) {
	var info agentproto.FileInfo
	req := agentproto.GetRequest{Path: path, Max: max}
	if err := req.Validate(); err != nil {
		return info, fmt.Errorf("agentclient: get %q: %w: %w", path, agentproto.ErrBadRequest, err)
	}
	err := c.exchange(ctx, agentproto.FrameGet, req, func(cn *conn) error {
		var got int64
		for {
			f, err := cn.next()
			if err != nil {
				return err
			}
			switch f.Type {
			case agentproto.FrameFileData:
				if got += int64(len(f.Payload)); got > max {
					return fmt.Errorf("agent sent more than %d bytes: %w", max, agentproto.ErrProtocol)
				}
				if _, err := w.Write(f.Payload); err != nil {
					return fmt.Errorf("write target: %w", err)
				}
			case agentproto.FrameOK:
				if err := agentproto.Decode(f.Payload, &info); err != nil {
					return err
				}
				if info.Size != got || info.Path != path {
					return fmt.Errorf("agent's facts do not fit the file: %w", agentproto.ErrProtocol)
				}
				return nil
			default:
				return unexpected(f)
			}
		}
	})
	return info, err
}

// ListFiles returns the facts of everything below dir ("" is /workspace),
// without following links, each directory before its content and in the order
// of names. At most max entries, 16 MiB of paths and agentproto.MaxListDepth
// levels: beyond them the error is ErrTruncated, and the entries are valid.
func (c *Client) ListFiles(ctx context.Context, dir string, max int) ([]agentproto.FileInfo, error) {
	req := agentproto.ListRequest{Dir: dir, Max: int64(max)}
	if err := req.Validate(); err != nil {
		return nil, fmt.Errorf("agentclient: list %q: %w: %w", dir, agentproto.ErrBadRequest, err)
	}
	var files []agentproto.FileInfo
	var end agentproto.ListEnd
	left := maxListBytes
	err := c.exchange(ctx, agentproto.FrameList, req, func(cn *conn) error {
		for {
			f, err := cn.next()
			if err != nil {
				return err
			}
			switch f.Type {
			case agentproto.FrameEntries:
				var e agentproto.Entries
				if err := agentproto.Decode(f.Payload, &e); err != nil {
					return err
				}
				if len(files)+len(e.Files) > max {
					return fmt.Errorf("agent listed more than %d entries: %w", max, agentproto.ErrProtocol)
				}
				for i := range e.Files {
					if left -= len(e.Files[i].Path); left < 0 {
						return errListBytes
					}
					files = append(files, e.Files[i])
				}
			case agentproto.FrameOK:
				return agentproto.Decode(f.Payload, &end)
			default:
				return unexpected(f)
			}
		}
	})
	if errors.Is(err, errListBytes) {
		return files, fmt.Errorf("%w: %w", ErrTruncated, err)
	}
	if err == nil && end.Truncated != "" {
		return files, fmt.Errorf("%w: more than its bound on %.16q", ErrTruncated, end.Truncated)
	}
	return files, err
}
