package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/tail"
	"thaw/guestinit/warm"
)

// runCode starts a cell; its end is sent by finish.
func (c *conn) runCode(payload []byte) error {
	var req agentproto.CodeRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	it, err := c.s.interpreter(req.ExecID)
	if err == nil {
		err = it.take(warmCell)
	}
	if err != nil {
		return c.sendError(err)
	}
	// If it ended just now, EXIT follows STARTED.
	if ok, err := it.e.attach(c); err != nil || !ok {
		if err == nil {
			err = c.sendError(&agentproto.Error{Code: agentproto.CodeNotFound, Message: "the interpreter has ended"})
		}
		return err
	}
	// Not here: the host may not read, and its frames must be.
	go it.cell(req)
	return nil
}

// cell runs one cell and answers whoever is attached at its end.
func (it *interpreter) cell(req agentproto.CodeRequest) {
	e := it.e
	defer it.s.guardExec(e)
	t := terms{StdoutCap: req.StdoutCap, StderrCap: req.StderrCap}
	if t.Grace = req.Grace; t.Grace == 0 {
		t.Grace = agentproto.DefaultGrace
	}
	if req.Timeout > 0 {
		t.Timeout = req.Timeout + t.Grace // the end of a context that heeds no interrupt
	}
	e.adopt(t)
	began := time.Now()
	answer, err := it.evaluate(req)
	if err != nil {
		// It has ended, or it is of no use: EXIT follows.
		e.abandon()
		return
	}
	res := result(answer)
	res.Wall = time.Since(began)
	it.flush(&res)
	e.adopt(terms{Grace: t.Grace, waits: true})
	it.setState(warmContext)
	if c := e.link.leave(); c != nil {
		c.setCurrent(nil)
		if err := c.send(agentproto.FrameOK, res); err != nil {
			c.nc.Close()
		}
	}
}

// evaluate sends the cell and waits for its end, as long as that takes.
func (it *interpreter) evaluate(req agentproto.CodeRequest) (warm.Answer, error) {
	cell, err := it.sendCell(req.Source)
	if err != nil {
		return warm.Answer{}, err
	}
	if req.Timeout > 0 {
		// ErrGone and a cell that has just ended need no interrupt; one that
		// waits ignores it.
		interrupt := time.AfterFunc(req.Timeout, func() { _ = it.e.proc.SignalGroup(unix.SIGINT) })
		defer interrupt.Stop()
	}
	answer, err := it.conn.Receive(time.Time{}, func(a warm.Answer) bool { return a.Kind == warm.KindCell && a.ID == cell.ID })
	if err == nil {
		err = it.obeyed(cell.Generation, answer)
	}
	return answer, err
}

func (it *interpreter) sendCell(source string) (cell warm.Cell, err error) {
	for {
		if err = it.s.freezer.gate.enter(); err == nil {
			break
		}
		// Frozen since the request came: the cell waits as the interpreter does.
		select {
		case <-it.e.proc.Done():
			return cell, err
		case <-time.After(time.Millisecond):
		}
	}
	defer it.s.freezer.gate.leave()
	if cell.Generation, err = it.settled(); err != nil {
		return cell, err
	}
	cell.Source = source
	it.mu.Lock()
	it.cells++
	cell.ID = it.cells
	it.mu.Unlock()
	return cell, it.conn.SendCell(cell)
}

// result turns an interpreter's answer into one for the host.
func result(a warm.Answer) agentproto.CellResult {
	res := agentproto.CellResult{
		Status: agentproto.CellStatus(a.Status), Type: a.Type, Message: warm.Cut(a.Message, agentproto.MaxCellMessage), Cut: a.Cut,
	}
	if res.Status == "" {
		res.Status = agentproto.CellOK
	}
	if a.Result != nil {
		res.HasResult = true
		res.Result = warm.Cut(*a.Result, agentproto.MaxResult)
		res.Cut = a.Cut || len(res.Result) < len(*a.Result)
	}
	return res
}

// flush sends all that the cell has written. If the connection is lost, that
// is thrown away with it.
func (it *interpreter) flush(res *agentproto.CellResult) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		res.StdoutBytes, res.StdoutDropped = it.e.stdout.flush()
		res.StderrBytes, res.StderrDropped = it.e.stderr.flush()
	}()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-done:
			return
		case <-look.C:
			if !it.e.link.attached() && !it.e.isAbandoned() {
				_, _ = it.e.attach(newConn(it.s, new(discard)))
			}
		}
	}
}

// flush sends what was written so far, the kept tail too, and counts.
func (o *output) flush() (total, dropped int64) {
	o.between(func(buf *buffer) {
		_ = o.sendTail(buf) // lost with the exec
		o.tail = tail.Tail{Max: o.tail.Max}
		o.e.link.mu.Lock()
		defer o.e.link.mu.Unlock()
		total, dropped = o.total, o.dropped()
	})
	return total, dropped
}

// leave takes the connection off, once nobody sends on it, and returns it.
func (l *link) leave() *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.c
	l.c = nil
	for l.senders > 0 {
		l.changed.Wait()
	}
	return c
}
