package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/proc"
	"thaw/guestinit/warm"
)

// answerPatience is how long a waiting interpreter may take to answer: it has
// nothing else to do.
const answerPatience = 10 * time.Second

// warmState says what an interpreter is.
//
//	          ready            RUN
//	starting ──────▶ fresh ──────────▶ job
//	                   │ CODE    ▲
//	                   ▼         │ never
//	      ┌────────▶ cell ──┐    │
//	      │ CODE            │ answer
//	      └─── context ◀────┘
//
// Whatever fails ends the interpreter: nobody could say what state it is in.
type warmState int

const (
	warmStarting warmState = iota
	warmFresh
	warmContext
	warmCell
	warmJob
)

// interpreter is one that waits, or did.
type interpreter struct {
	s    *Server
	e    *execution
	conn *warm.Conn

	keeper  *keeper // nil: it has none
	limited bool    // it has other resource limits than the defaults; who took it for a job may touch it

	mu    sync.Mutex
	state warmState        // protected by mu
	still bool             // as it was frozen, none of its code could run by itself; protected by mu
	later *warm.Generation // it is told of with its next job or cell; nil: none; protected by mu
	owed  uint64           // generation whose answer was not read yet; protected by mu
	cold  string           // why a fresh interpreter runs the job; protected by mu
	cells uint64           // protected by mu
}

// warmSet holds a server's interpreters. It is what is told of generations.
type warmSet struct {
	dir string // of the runners

	mu        sync.Mutex
	installed bool                    // protected by mu
	byID      map[uint64]*interpreter // by exec id; protected by mu
}

func newWarmSet() *warmSet {
	return &warmSet{dir: warm.Dir, byID: make(map[uint64]*interpreter)}
}

// install writes the runners once.
func (w *warmSet) install() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.installed {
		return nil
	}
	if err := warm.Install(w.dir); err != nil {
		return err
	}
	w.installed = true
	return nil
}

func (w *warmSet) add(it *interpreter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[it.e.id] = it
}

func (w *warmSet) remove(it *interpreter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byID, it.e.id)
}

func (w *warmSet) all() []*interpreter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.byID))
}

func (w *warmSet) get(id uint64) *interpreter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.byID[id]
}

// coldReason says why a fresh interpreter runs the job of an exec, or "".
func (w *warmSet) coldReason(id uint64) string {
	it := w.get(id)
	if it == nil {
		return ""
	}
	it.mu.Lock()
	defer it.mu.Unlock()
	return it.cold
}

// Frozen finds out which interpreters are still. It is done here, and not at a
// generation: no process of the machine changes until then.
func (w *warmSet) Frozen() {
	for _, it := range w.all() {
		it.mu.Lock()
		if it.state == warmContext || it.state == warmCell {
			it.still = proc.Still(it.e.proc.PID)
		}
		it.mu.Unlock()
	}
}

// Renew tells every interpreter of a generation. They are frozen: one that
// waits reads of it before it reads of a job, and one that runs code gets a
// signal before its next instruction. One that waits and in which nothing can run
// before its next job or cell is told with that: it need not wake up now.
func (w *warmSet) Renew(g agentproto.Generation, frozen bool) error {
	var errs []error
	for _, it := range w.all() {
		errs = append(errs, it.renew(g, frozen))
	}
	return errors.Join(errs...)
}

func (it *interpreter) renew(g agentproto.Generation, frozen bool) error {
	it.mu.Lock()
	defer it.mu.Unlock()
	told := warm.Generation{Number: g.Number, Seed: g.Seed}
	switch {
	case frozen && (it.state == warmFresh || it.state == warmContext && it.still):
		it.later = &told
	case it.state == warmFresh, it.state == warmContext:
		it.later = nil
		if err := it.conn.SendGeneration(told); err != nil {
			it.e.abandon()
			return fmt.Errorf("agent: interpreter %d: %w", it.e.id, err)
		}
		it.owed = g.Number
	case it.state == warmCell, it.state == warmJob:
		// ErrGone: nothing left to renew.
		_ = it.e.proc.Signal(unix.SIGURG)
	}
	return nil
}

// take moves the interpreter on, or says why it cannot go there.
func (it *interpreter) take(next warmState) error {
	it.mu.Lock()
	defer it.mu.Unlock()
	switch {
	case it.state == warmFresh, it.state == warmContext && next == warmCell:
		it.state = next
		return nil
	case it.state == warmStarting, it.state == warmCell:
		return &agentproto.Error{Code: agentproto.CodeBusy, Message: fmt.Sprintf("interpreter %d is busy", it.e.id)}
	}
	return &agentproto.Error{Code: agentproto.CodeBadRequest, Message: fmt.Sprintf("interpreter %d is not fresh", it.e.id)}
}

func (it *interpreter) setState(s warmState) {
	it.mu.Lock()
	defer it.mu.Unlock()
	it.state = s
}

// settled waits until the interpreter has renewed its generators, if it was
// told to, and returns the generation that it is yet to be told of, if any.
// Preconditions: it waits for a message, and the caller took it.
func (it *interpreter) settled() (later *warm.Generation, err error) {
	it.mu.Lock()
	owed := it.owed
	later = it.later
	it.owed, it.later = 0, nil
	it.mu.Unlock()
	if owed == 0 {
		return later, nil
	}
	_, err = it.conn.Receive(time.Now().Add(answerPatience), func(a warm.Answer) bool {
		return a.Kind == warm.KindGeneration && a.Number == owed
	})
	if err != nil {
		return nil, fmt.Errorf("agent: random generators of interpreter %d are not renewed: %w", it.e.id, err)
	}
	return later, nil
}

// obeyed checks that an answer is to a message with the generation, if there was one.
func (it *interpreter) obeyed(told *warm.Generation, a warm.Answer) error {
	if told != nil && a.Number != told.Number {
		return fmt.Errorf("agent: random generators of interpreter %d are not renewed: %w", it.e.id, warm.ErrProtocol)
	}
	return nil
}

// find returns the interpreter that a request names.
func (s *Server) interpreter(id uint64) (*interpreter, error) {
	if it := s.warm.get(id); it != nil {
		return it, nil
	}
	return nil, &agentproto.Error{Code: agentproto.CodeNotFound, Message: fmt.Sprintf("no interpreter %d", id)}
}
