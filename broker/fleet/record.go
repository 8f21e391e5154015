package fleet

import (
	"time"

	"thaw/vmm/vmmproto"
)

// Op is what a record is about.
type Op string

// Operations.
const (
	OpTemplate   Op = "template"
	OpRestore    Op = "restore"
	OpBind       Op = "bind"
	OpRehearse   Op = "rehearse"
	OpCheckpoint Op = "checkpoint"
	OpRollback   Op = "rollback"
)

// Record tells what an operation did and what its time was spent on. Counts are in
// pages of 4096 bytes.
type Record struct {
	Op         Op        `json:"op"`
	At         time.Time `json:"at"` // begin
	Machine    string    `json:"machine,omitempty"`
	Snapshot   string    `json:"snapshot,omitempty"` // that was made, or restored
	Parent     string    `json:"parent,omitempty"`   // of the snapshot that was made
	Class      Class     `json:"class"`
	Generation uint64    `json:"generation,omitempty"`
	Shell      Kind      `json:"shell,omitempty"` // that served a restore
	Phases     []Phase   `json:"phases"`
	Total      float64   `json:"total_ms"`
	// Ack is the time from the request to the guest's acknowledgement.
	Ack float64 `json:"ack_ms,omitempty"`

	// Of restores and rollbacks.
	Overlays int  `json:"overlays,omitempty"`
	Private  int  `json:"private_pages,omitempty"`  // that the machine had made its own
	Copied   int  `json:"copied_pages,omitempty"`   // of them, that differed
	PutBack  int  `json:"put_back_pages,omitempty"` // that it had given back
	Dropped  bool `json:"dropped,omitempty"`        // dropped rather than compared

	// Of checkpoints and templates.
	Tracker    string  `json:"tracker,omitempty"`
	CopyAhead  bool    `json:"copy_ahead,omitempty"`
	Candidates int     `json:"candidate_pages,omitempty"`
	Same       int     `json:"same_pages,omitempty"`
	Pages      int     `json:"pages,omitempty"` // stored
	ZeroPages  int     `json:"zero_pages,omitempty"`
	Freeze     float64 `json:"freeze_ms,omitempty"` // until the guest's processes stood still
	Pause      float64 `json:"pause_ms,omitempty"`  // while no vCPU ran
	Depth      int     `json:"depth,omitempty"`
}

// Phase is one part of an operation, in order.
type Phase struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()/1000) / 1000 }

// clock times the phases of an operation.
type clock struct {
	began, last time.Time
	phases      []Phase
}

func startClock() *clock {
	now := time.Now()
	return &clock{began: now, last: now, phases: make([]Phase, 0, 16)}
}

// done ends a phase, within which the VMM has reported parts of its own.
func (c *clock) done(name string, parts ...vmmproto.Phase) {
	now := time.Now()
	for _, p := range parts {
		c.phases = append(c.phases, Phase{Name: name + "/" + p.Name, MS: float64(p.Micros) / 1000})
	}
	c.phases = append(c.phases, Phase{Name: name, MS: ms(now.Sub(c.last))})
	c.last = now
}

// part adds the parts of the phase that is under way.
func (c *clock) part(name string, parts []Phase) {
	for _, p := range parts {
		c.phases = append(c.phases, Phase{Name: name + "/" + p.Name, MS: p.MS})
	}
}

func (c *clock) total() float64 { return ms(time.Since(c.began)) }

// note hands a finished record on.
func (f *Fleet) note(r *Record, c *clock) {
	r.At, r.Phases, r.Total = c.began, c.phases, c.total()
	f.cfg.Log.Debug("fleet", "op", r.Op, "machine", r.Machine, "snapshot", r.Snapshot, "shell", r.Shell, "total_ms", r.Total,
		"ack_ms", r.Ack, "pause_ms", r.Pause, "pages", r.Pages, "phases", r.Phases)
	f.cfg.Observe(*r)
}
