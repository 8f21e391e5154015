package labproto

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
)

// Hello is the first thing the lab writes to its port, before the yamux session
// begins: it marks the start of the stream and names the protocol's version.
const Hello = "thaw-lab 1\n"

// PortName names the virtio-serial port in the lab
// (/sys/class/virtio-ports/*/name).
const PortName = "thaw.lab"

// Op is what a Request asks for.
type Op string

const (
	OpExec    Op = "exec"    // run Argv
	OpConnect Op = "connect" // connect to the Unix socket Path
	OpSignal  Op = "signal"  // send Signal to the process group of command PID
	OpInfo    Op = "info"    // answer with Info
)

// maxSignal is Linux's SIGRTMAX.
const maxSignal = 64

// Request is the first message of a stream.
type Request struct {
	Op   Op       `json:"op"`
	Argv []string `json:"argv,omitempty"`
	// Env is the whole environment of the command, "KEY=VALUE" each.
	Env []string `json:"env,omitempty"`
	// Dir is the command's working directory; empty is "/".
	Dir  string `json:"dir,omitempty"`
	Path string `json:"path,omitempty"`
	// PID is a Reply's, of a command that runs.
	PID    int `json:"pid,omitempty"`
	Signal int `json:"signal,omitempty"`
}

// Check says what is wrong with a request.
func (r Request) Check() error {
	switch r.Op {
	case OpExec:
		if len(r.Argv) == 0 || r.Argv[0] == "" {
			return fmt.Errorf("labproto: exec without a command")
		}
		if r.Dir != "" && !filepath.IsAbs(r.Dir) {
			return fmt.Errorf("labproto: exec in %q: not an absolute path", r.Dir)
		}
	case OpConnect:
		if !filepath.IsAbs(r.Path) {
			return fmt.Errorf("labproto: connect to %q: not an absolute path", r.Path)
		}
	case OpSignal:
		if r.PID <= 1 || r.Signal < 1 || r.Signal > maxSignal {
			return fmt.Errorf("labproto: signal %d to %d: out of range", r.Signal, r.PID)
		}
	case OpInfo:
	default:
		return fmt.Errorf("labproto: unknown operation %q", r.Op)
	}
	return nil
}

// Reply answers a Request. Error is empty when the request was carried out.
type Reply struct {
	Error string `json:"error,omitempty"`
	PID   int    `json:"pid,omitempty"` // of the command, in the lab
	Info  *Info  `json:"info,omitempty"`
}

// Info describes the lab from inside.
type Info struct {
	Kernel        string   `json:"kernel"`
	UptimeSeconds float64  `json:"uptime_seconds"`
	CPUs          int      `json:"cpus"`
	MemoryBytes   uint64   `json:"memory_bytes"`
	Controllers   []string `json:"cgroup_controllers"`
	// Missing names modules that could not be loaded, each with its reason.
	Missing []string `json:"missing_modules,omitempty"`
}

// Exit is how a command ended: by Code, or by Signal when that is not 0.
type Exit struct {
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"`
}

// Status folds an Exit into one number, as a shell does.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + e.Signal
	}
	return e.Code
}

// WriteJSON sends v as the payload of one frame.
func WriteJSON(w io.Writer, t Type, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("labproto: encode: %w", err)
	}
	return Write(w, t, b)
}

// ReadJSON takes the next frame, which must be of type t, into v.
func ReadJSON(r *Reader, t Type, v any) error {
	f, err := r.Read()
	if err != nil {
		return err
	}
	if f.Type != t {
		return fmt.Errorf("%w: type %d where %d was due", ErrFrame, f.Type, t)
	}
	return decode(f, v)
}

// DecodeExit decodes a frame of type Exit.
func DecodeExit(f Frame) (Exit, error) {
	var e Exit
	err := decode(f, &e)
	return e, err
}

func decode(f Frame, v any) error {
	if err := json.Unmarshal(f.Data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}
