package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"thaw/lab/labproto"
)

// State is where a lab is in its life; see the package comment.
type State string

const (
	StateDown       State = "down"
	StateStarting   State = "starting"
	StateUp         State = "up"
	StateRestarting State = "restarting"
	StateFailed     State = "failed"
)

// Status is what is known of a lab; it is also the JSON of its status file.
type Status struct {
	State State `json:"state"`
	// PID is the supervisor's, QEMUPID the emulator's.
	PID     int       `json:"pid,omitempty"`
	QEMUPID int       `json:"qemu_pid,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of State
	// BootSeconds is how long the last start took, on the host's clock.
	BootSeconds float64 `json:"boot_seconds,omitempty"`
	// Restarts counts the starts after a death, Deaths says why, in order.
	Restarts int      `json:"restarts"`
	Deaths   []string `json:"deaths,omitempty"`
	// Error is why the lab failed.
	Error    string            `json:"error,omitempty"`
	Service  string            `json:"service,omitempty"` // running, or how it ended
	Tools    ToolManifest      `json:"tools,omitzero"`
	Inside   *labproto.Info    `json:"inside,omitempty"`
	Forward  map[string]string `json:"forward,omitempty"`
	Console  string            `json:"console,omitempty"` // log of the serial console
	StateDir string            `json:"state_dir,omitempty"`
}

const statusFile = "status.json"

// ReadStatus reads the status of the lab in stateDir. Where there never was one
// its state is StateDown. A status file left by a supervisor that was killed
// says StateDown too.
func ReadStatus(stateDir string) (Status, error) {
	b, err := os.ReadFile(filepath.Join(stateDir, statusFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Status{State: StateDown, StateDir: stateDir}, nil
	}
	if err != nil {
		return Status{}, fmt.Errorf("lab: read status: %w", err)
	}
	var s Status
	if err := json.Unmarshal(b, &s); err != nil {
		return Status{}, fmt.Errorf("lab: decode status: %w", err)
	}
	if s.State != StateFailed && s.State != StateDown {
		held, err := lockHeld(stateDir)
		if err != nil {
			return Status{}, err
		}
		if !held {
			s.State, s.PID, s.QEMUPID = StateDown, 0, 0
		}
	}
	return s, nil
}

// write replaces the status file in one step: a reader sees the old or the new.
func (s Status) write(stateDir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("lab: encode status: %w", err)
	}
	tmp := filepath.Join(stateDir, statusFile+".new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("lab: write status: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(stateDir, statusFile)); err != nil {
		return fmt.Errorf("lab: write status: %w", err)
	}
	return nil
}
