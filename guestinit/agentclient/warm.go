package agentclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thaw/guestinit/agentproto"
)

// ErrContextEnded is wrapped by the error of a cell whose interpreter ended
// with it: it exited, was killed, or heeded no interrupt.
var ErrContextEnded = errors.New("the context has ended")

// Warm starts an interpreter and returns when it waits for a job or a cell.
// It outlives its connection, like a persistent exec.
func (c *Client) Warm(ctx context.Context, req agentproto.WarmRequest) (agentproto.WarmResult, error) {
	var res agentproto.WarmResult
	if err := req.Validate(); err != nil {
		return res, fmt.Errorf("agentclient: warm: %w: %w", agentproto.ErrBadRequest, err)
	}
	err := c.exchange(ctx, agentproto.FrameWarm, req, func(cn *conn) error { return cn.ok(&res) })
	return res, err
}

// Run has a warm interpreter become a job. The Process is as Exec's;
// Started().Cold says if a fresh interpreter had to be started after all.
func (c *Client) Run(ctx context.Context, req agentproto.RunRequest, stdio ExecIO) (*Process, error) {
	req.Stdin = stdio.Stdin != nil
	if err := req.Validate(); err != nil {
		return nil, fmt.Errorf("agentclient: run: %w: %w", agentproto.ErrBadRequest, err)
	}
	stdio.discard()
	cn, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	p := &Process{c: c, cn: cn, what: fmt.Sprintf("run %q", req.Argv[0]), grace: req.Grace, io: stdio}
	if p.grace == 0 {
		p.grace = agentproto.DefaultGrace
	}
	p.io.StdoutMax, p.io.StderrMax = req.StdoutCap, req.StderrCap
	started, err := p.start(ctx, agentproto.FrameRun, req)
	if err != nil {
		return nil, err
	}
	p.run(ctx, started, agentproto.StdinWindow)
	return p, nil
}

// Code runs one cell. If ctx ends, the cell is interrupted, and Code returns
// its result, or, if it does not end within its grace, an error; the cell may
// go on then. A writer that fails interrupts it too.
func (c *Client) Code(ctx context.Context, req agentproto.CodeRequest, stdio ExecIO) (agentproto.CellResult, error) {
	if err := req.Validate(); err != nil {
		return agentproto.CellResult{}, fmt.Errorf("agentclient: code: %w: %w", agentproto.ErrBadRequest, err)
	}
	stdio.discard()
	cn, err := c.get(ctx)
	if err != nil {
		return agentproto.CellResult{}, err
	}
	x := &cellExchange{cn: cn, grace: req.Grace, done: make(chan struct{})}
	if x.grace == 0 {
		x.grace = agentproto.DefaultGrace
	}
	stop := context.AfterFunc(ctx, x.interrupt)
	err = cn.send(agentproto.FrameCode, req)
	var res agentproto.CellResult
	if err == nil {
		res, err = x.receive(req, stdio)
	}
	close(x.done)
	interrupted := !stop()
	var reported *agentproto.Error
	switch {
	case interrupted || err != nil && !errors.As(err, &reported) && !errors.Is(err, ErrContextEnded):
		// A signal may still be on its way, and is not for the next exchange.
		cn.nc.Close()
	default:
		c.put(cn)
	}
	if err != nil {
		if interrupted {
			err = errors.Join(context.Cause(ctx), err)
		}
		return res, fmt.Errorf("agentclient: code: %w", err)
	}
	return res, nil
}

// cellExchange is a cell that runs.
type cellExchange struct {
	cn    *conn
	grace time.Duration
	done  chan struct{} // closed when the exchange is over
}

// interrupt sends SIGINT, and closes the connection if that does not help.
func (x *cellExchange) interrupt() {
	if err := x.cn.nc.SetWriteDeadline(time.Now().Add(controlPatience)); err != nil {
		return
	}
	const sigint = 2
	if err := x.cn.send(agentproto.FrameSignal, agentproto.Signal{Number: sigint}); err != nil {
		x.cn.nc.Close()
		return
	}
	t := time.NewTimer(x.grace)
	defer t.Stop()
	select {
	case <-x.done:
	case <-t.C:
		x.cn.nc.Close()
	}
}

// receive handles the guest's frames until the cell's end.
func (x *cellExchange) receive(req agentproto.CodeRequest, stdio ExecIO) (agentproto.CellResult, error) {
	var res agentproto.CellResult
	var writeErr error
	stdout := &sink{w: stdio.Stdout, limit: req.StdoutCap}
	stderr := &sink{w: stdio.Stderr, limit: req.StderrCap}
	for {
		f, err := x.cn.next()
		if err != nil {
			return res, errors.Join(writeErr, err)
		}
		switch f.Type {
		case agentproto.FrameStarted:
			err = agentproto.Decode(f.Payload, new(agentproto.Started))
		case agentproto.FrameStdout:
			err = stdout.write(f.Payload)
		case agentproto.FrameStderr:
			err = stderr.write(f.Payload)
		case agentproto.FrameStdinCredit:
			_, err = agentproto.ParseCredit(f.Payload)
		case agentproto.FrameOK:
			return res, errors.Join(agentproto.Decode(f.Payload, &res), writeErr)
		case agentproto.FrameExit:
			var s agentproto.ExitStatus
			if err := agentproto.Decode(f.Payload, &s); err != nil {
				return res, err
			}
			return res, fmt.Errorf("%w: %s, code %d, signal %d", ErrContextEnded, s.Cause, s.Code, s.Signal)
		default:
			return res, unexpected(f)
		}
		if errors.Is(err, agentproto.ErrProtocol) {
			return res, err
		}
		if err != nil && writeErr == nil {
			writeErr = err
			go x.interrupt()
		}
	}
}
