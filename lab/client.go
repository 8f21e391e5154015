package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"thaw/lab/labproto"
)

// ErrDied is wrapped by the error of a command whose lab died under it: whether
// the command did its work is not known.
var ErrDied = errors.New("lab: died while the command ran")

// killTimeout bounds the attempt to kill a command that was given up.
const killTimeout = 10 * time.Second

// Command is a program to run in the lab.
type Command struct {
	Argv []string `json:"argv"`
	// Env is the whole environment ("KEY=VALUE"); nil is PATH and HOME alone.
	Env []string `json:"env,omitempty"`
	// Dir is the working directory; empty is "/".
	Dir string `json:"dir,omitempty"`

	Stdin          io.Reader `json:"-"` // nil is empty
	Stdout, Stderr io.Writer `json:"-"` // nil discards
}

// Client asks a running lab. Its methods may be called concurrently.
type Client struct {
	dial func(context.Context) (net.Conn, error)
}

// NewClient returns a client whose streams come from dial.
func NewClient(dial func(context.Context) (net.Conn, error)) *Client { return &Client{dial} }

// request opens a stream, sends req and takes the reply. The stream is closed
// when ctx ends, until the caller calls stop.
func (c *Client) request(ctx context.Context, req labproto.Request) (conn net.Conn, r *labproto.Reader, reply labproto.Reply, err error) {
	if err := req.Check(); err != nil {
		return nil, nil, reply, err
	}
	conn, err = c.dial(ctx)
	if err != nil {
		return nil, nil, reply, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	r = labproto.NewReader(conn)
	err = labproto.WriteJSON(conn, labproto.TypeRequest, req)
	if err == nil {
		err = labproto.ReadJSON(r, labproto.TypeReply, &reply)
	}
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case err != nil && !errors.Is(err, labproto.ErrFrame):
		err = fmt.Errorf("%w: %w", ErrDied, err)
	case err == nil && reply.Error != "":
		err = errors.New(reply.Error)
	}
	if err != nil {
		conn.Close()
		return nil, nil, reply, fmt.Errorf("lab: %s: %w", req.Op, err)
	}
	return conn, r, reply, nil
}

// Info describes the lab from inside.
func (c *Client) Info(ctx context.Context) (labproto.Info, error) {
	conn, _, reply, err := c.request(ctx, labproto.Request{Op: labproto.OpInfo})
	if err != nil {
		return labproto.Info{}, err
	}
	conn.Close()
	if reply.Info == nil {
		return labproto.Info{}, errors.New("lab: info: empty answer")
	}
	return *reply.Info, nil
}

// DialUnix connects to a Unix socket in the lab. The connection's Close ends
// only the direction to the lab while the other end is open.
func (c *Client) DialUnix(ctx context.Context, path string) (net.Conn, error) {
	conn, _, _, err := c.request(ctx, labproto.Request{Op: labproto.OpConnect, Path: path})
	return conn, err
}

// Run runs a command and returns its exit code, 128 + N after a signal N. When
// ctx ends the command's process group is killed and ctx's error returned. A
// lab that dies meanwhile gives ErrDied.
func (c *Client) Run(ctx context.Context, cmd Command) (exit int, err error) {
	conn, r, reply, err := c.request(ctx, labproto.Request{
		Op: labproto.OpExec, Argv: cmd.Argv, Env: cmd.Env, Dir: cmd.Dir,
	})
	if err != nil {
		return -1, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	go sendInput(conn, cmd.Stdin)
	code, err := output(r, cmd)
	if ctx.Err() != nil {
		c.kill(reply.PID)
		return -1, ctx.Err()
	}
	return code, err
}

// kill ends a command whose caller waits no more. That the lab has gone, or the
// command, is no matter then.
func (c *Client) kill(pid int) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	conn, _, _, err := c.request(ctx, labproto.Request{Op: labproto.OpSignal, PID: pid, Signal: int(unix.SIGKILL)})
	if err == nil {
		conn.Close()
	}
}

// output passes frames on until the command's exit.
func output(r *labproto.Reader, cmd Command) (int, error) {
	for {
		f, err := r.Read()
		if err != nil {
			return -1, fmt.Errorf("%w: %w", ErrDied, err)
		}
		w := io.Discard
		switch f.Type {
		case labproto.TypeStdout:
			if cmd.Stdout != nil {
				w = cmd.Stdout
			}
		case labproto.TypeStderr:
			if cmd.Stderr != nil {
				w = cmd.Stderr
			}
		case labproto.TypeExit:
			exit, err := labproto.DecodeExit(f)
			return exit.Status(), err
		default:
			return -1, fmt.Errorf("lab: run %s: frame of type %d", cmd.Argv[0], f.Type)
		}
		if _, err := w.Write(f.Data); err != nil {
			return -1, fmt.Errorf("lab: pass on output of %s: %w", cmd.Argv[0], err)
		}
	}
}

// sendInput sends r as standard input until it ends or the stream does.
func sendInput(w io.Writer, r io.Reader) {
	if r != nil {
		buf := make([]byte, labproto.MaxData)
		for {
			n, err := r.Read(buf)
			if n > 0 && labproto.Write(w, labproto.TypeStdin, buf[:n]) != nil {
				return
			}
			if err != nil {
				break
			}
		}
	}
	// The command has ended if this can not be sent.
	_ = labproto.Write(w, labproto.TypeCloseStdin, nil)
}
