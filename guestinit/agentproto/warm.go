package agentproto

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of warm interpreters' messages.
const (
	MaxPreload = 256
	// MaxResult and MaxCellMessage bound the texts of a CellResult in bytes.
	MaxResult      = 32 << 10
	MaxCellMessage = 4 << 10
	// DefaultWarmTimeout is for a WarmRequest that names none.
	DefaultWarmTimeout = 2 * time.Minute
)

// WarmRequest starts an interpreter that waits for a job or for cells. OK
// carries a WarmResult once it waits.
type WarmRequest struct {
	Runtime string `cbor:"1,keyasint"` // "python" or "node"
	// Preload names what it loads. Nil is the agent's choice, which is more
	// than an image has: what is missing is told and no error.
	Preload []string `cbor:"2,keyasint,omitempty"`
	// Env is what it starts with, as in an ExecRequest. A job that needs
	// another value of a variable that acts at the start (PYTHONPATH,
	// NODE_OPTIONS) is run by a fresh interpreter.
	Env     []string      `cbor:"3,keyasint,omitempty"`
	Timeout time.Duration `cbor:"4,keyasint,omitempty"` // 0 is DefaultWarmTimeout
}

// Validate checks every bound.
func (r *WarmRequest) Validate() error {
	if len(r.Preload) > MaxPreload {
		return fmt.Errorf("preload has %d entries, more than %d", len(r.Preload), MaxPreload)
	}
	for _, p := range r.Preload {
		if p == "" || len(p) > MaxPath {
			return errors.New("preload has an empty or long entry")
		}
	}
	if r.Timeout < 0 {
		return errors.New("timeout is negative")
	}
	return (&ExecRequest{Argv: []string{"x"}, Env: r.Env}).Validate()
}

// WarmResult answers a WarmRequest.
type WarmResult struct {
	ExecID  uint64        `cbor:"1,keyasint"`
	PID     int32         `cbor:"2,keyasint"`
	Version string        `cbor:"3,keyasint"` // of the interpreter
	Modules int64         `cbor:"4,keyasint"` // loaded
	Missing []string      `cbor:"5,keyasint,omitempty"`
	Took    time.Duration `cbor:"6,keyasint"` // from its start until it waited
	// MemoryBytes is what it holds, shared files included.
	MemoryBytes int64 `cbor:"7,keyasint,omitempty"`
}

// Validate bounds what a guest may claim.
func (r *WarmResult) Validate() error {
	if len(r.Version) > 256 || len(r.Missing) > MaxPreload || r.Modules < 0 || r.Took < 0 || r.MemoryBytes < 0 {
		return errors.New("warm result is out of bounds")
	}
	for _, m := range r.Missing {
		if len(m) > MaxPath {
			return errors.New("warm result is out of bounds")
		}
	}
	return nil
}

// RunRequest has a warm interpreter become a job. What follows is as for an
// ExecRequest, with the id of the interpreter.
type RunRequest struct {
	ExecID uint64   `cbor:"1,keyasint"`
	Argv   []string `cbor:"2,keyasint"` // the first names the interpreter
	Env    []string `cbor:"3,keyasint,omitempty"`
	Cwd    string   `cbor:"4,keyasint,omitempty"`

	Limits    Limits        `cbor:"5,keyasint"`
	StdoutCap int64         `cbor:"6,keyasint,omitempty"`
	StderrCap int64         `cbor:"7,keyasint,omitempty"`
	Timeout   time.Duration `cbor:"8,keyasint,omitempty"`
	Grace     time.Duration `cbor:"9,keyasint,omitempty"`
	Stdin     bool          `cbor:"10,keyasint,omitempty"` // the client sets it

	// Outputs is a directory of the workspace, made if it is missing, which the
	// ExitStatus says of whether it is empty; "" is none.
	Outputs string `cbor:"11,keyasint,omitempty"`
}

// Exec returns the ExecRequest that asks for the same of a fresh process.
func (r *RunRequest) Exec() ExecRequest {
	return ExecRequest{
		Argv: r.Argv, Env: r.Env, Cwd: r.Cwd, Limits: r.Limits, StdoutCap: r.StdoutCap, StderrCap: r.StderrCap,
		Timeout: r.Timeout, Grace: r.Grace, Stdin: r.Stdin,
	}
}

// Validate checks every bound.
func (r *RunRequest) Validate() error {
	if r.Outputs != "" {
		if err := ValidPath(r.Outputs); err != nil {
			return err
		}
	}
	e := r.Exec()
	return e.Validate()
}

// CodeRequest runs one cell in a warm interpreter, which is a context from the
// first one on. STARTED and output follow, then OK with a CellResult; or EXIT,
// if the interpreter ended.
type CodeRequest struct {
	ExecID uint64 `cbor:"1,keyasint"`
	Source string `cbor:"2,keyasint"`
	// Timeout has the cell interrupted; 0 is none. If it does not heed that
	// within Grace, the context is killed.
	Timeout   time.Duration `cbor:"3,keyasint,omitempty"`
	Grace     time.Duration `cbor:"4,keyasint,omitempty"`
	StdoutCap int64         `cbor:"5,keyasint,omitempty"`
	StderrCap int64         `cbor:"6,keyasint,omitempty"`
}

// Validate checks every bound.
func (r *CodeRequest) Validate() error {
	return (&ExecRequest{
		Argv: []string{"x"}, StdoutCap: r.StdoutCap, StderrCap: r.StderrCap, Timeout: r.Timeout, Grace: r.Grace,
	}).Validate()
}

// CellStatus says how a cell ended.
type CellStatus string

// The ways. In all of them the context lives on.
const (
	CellOK          CellStatus = "ok"
	CellError       CellStatus = "error"       // an exception, written to standard error too
	CellInterrupted CellStatus = "interrupted" // by Timeout or a signal
)

// CellResult answers a CodeRequest.
type CellResult struct {
	Status CellStatus `cbor:"1,keyasint"`
	// Result is the value of the last expression as the language shows it, of
	// at most MaxResult bytes; Cut says that it was longer. HasResult tells an
	// empty one from none.
	Result    string `cbor:"2,keyasint,omitempty"`
	HasResult bool   `cbor:"3,keyasint,omitempty"`
	Cut       bool   `cbor:"4,keyasint,omitempty"`
	Type      string `cbor:"5,keyasint,omitempty"` // of the exception
	Message   string `cbor:"6,keyasint,omitempty"`

	StdoutBytes   int64         `cbor:"7,keyasint,omitempty"` // written
	StdoutDropped int64         `cbor:"8,keyasint,omitempty"`
	StderrBytes   int64         `cbor:"9,keyasint,omitempty"`
	StderrDropped int64         `cbor:"10,keyasint,omitempty"`
	Wall          time.Duration `cbor:"11,keyasint"`
}

// Validate bounds what a guest may claim.
func (r *CellResult) Validate() error {
	switch r.Status {
	case CellOK, CellError, CellInterrupted:
	default:
		return errors.New("cell status is unknown")
	}
	if len(r.Result) > MaxResult || len(r.Type) > 256 || len(r.Message) > MaxCellMessage {
		return errors.New("text of a cell result is out of bounds")
	}
	for _, v := range []int64{r.StdoutBytes, r.StdoutDropped, r.StderrBytes, r.StderrDropped, int64(r.Wall)} {
		if v < 0 {
			return errors.New("count of a cell result is negative")
		}
	}
	return nil
}
