// Package plan makes several renames of folders one step, whatever crashes.
package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"thaw/snapshot/durable"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
)

// Plan says what is to be done. It is a folder of work/ that holds the
// snapshots to come and a list of all that is to be done:
//
//	work/draft-<id>/       plan.json, <id>/ …   being written; debris after a crash
//	    │ rename, work/ fsynced: decided
//	work/plan-<id>/                             done again by Open after a crash
//	    │ each snapshot to come is renamed into snapshots/, parents first;
//	    │ each snapshot to go is renamed out of it, children first; fsynced
//	(removed)
type Plan struct {
	Install []string `json:"install,omitempty"` // parents first
	Remove  []string `json:"remove,omitempty"`  // children first
}

// Gone begins the name of a folder that is being removed.
const Gone = "gone-"

const (
	planName    = "plan.json"
	prefix      = "plan-"
	draftPrefix = "draft-"
	maxPlan     = 1 << 20 // bytes of plan.json
)

// Folders is where plans are made and carried out.
type Folders struct {
	Work string // plans, and what is being written or removed
	Into string // snapshots that are complete
	// At is called at each step; an error is a fault at that instant.
	At func(step string) error
}

// Steps, at which a crash leaves the old or the new state.
const (
	Written = "plan: written"
	Decided = "plan: renamed"
	Moved   = "plan: one moved"
	Done    = "plan: all moved"
)

// New makes the folder of a plan, in which Install's snapshots are written.
func (s Folders) New() (dir string, err error) {
	dir = filepath.Join(s.Work, draftPrefix+manifest.NewID())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("plan: make folder: %w", durable.Full(err))
	}
	return dir, nil
}

// Decide writes the plan down and makes it happen, whatever crashes. After an error
// the caller removes dir; decided says whether it is too late for that.
func (s Folders) Decide(dir string, p Plan) (decided bool, err error) {
	b, err := json.Marshal(p)
	if err != nil {
		return false, fmt.Errorf("plan: encode plan: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(dir, planName), b); err != nil {
		return false, err
	}
	if err := durable.SyncDir(dir); err != nil {
		return false, err
	}
	if err := s.At(Written); err != nil {
		return false, err
	}
	final := filepath.Join(s.Work, prefix+strings.TrimPrefix(filepath.Base(dir), draftPrefix))
	if err := os.Rename(dir, final); err != nil {
		return false, fmt.Errorf("plan: decide plan: %w", err)
	}
	if err := durable.SyncDir(s.Work); err != nil {
		return true, err
	}
	if err := s.At(Decided); err != nil {
		return true, err
	}
	return true, s.carryOut(final, p)
}

// carryOut does what of a decided plan is not done yet.
func (s Folders) carryOut(dir string, p Plan) error {
	for _, id := range p.Install {
		if err := moved(filepath.Join(dir, id), filepath.Join(s.Into, id)); err != nil {
			return err
		}
		if err := s.At(Moved); err != nil {
			return err
		}
	}
	for _, id := range p.Remove {
		if err := moved(filepath.Join(s.Into, id), filepath.Join(dir, Gone+id)); err != nil {
			return err
		}
		if err := s.At(Moved); err != nil {
			return err
		}
	}
	if err := durable.SyncDir(s.Into); err != nil {
		return err
	}
	if err := s.At(Done); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("plan: remove plan: %w", err)
	}
	return nil
}

// moved renames from to to, if that has not happened before.
func moved(from, to string) error {
	err := os.Rename(from, to)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("plan: carry out plan: %w", err)
	}
	return nil
}

// Finish carries out the plans that a crash interrupted.
func (s Folders) Finish() error {
	list, err := os.ReadDir(s.Work)
	if err != nil {
		return fmt.Errorf("plan: list work: %w", err)
	}
	for _, d := range list {
		if !strings.HasPrefix(d.Name(), prefix) {
			continue
		}
		dir := filepath.Join(s.Work, d.Name())
		b, err := durable.ReadBounded(filepath.Join(dir, planName), maxPlan)
		if errors.Is(err, os.ErrNotExist) {
			continue // its removal was interrupted: all was done
		}
		if err != nil {
			return err
		}
		var p Plan
		if err := json.Unmarshal(b, &p); err != nil {
			return fmt.Errorf("plan: read plan %s: %w: %w", d.Name(), err, layer.ErrDamaged)
		}
		for _, id := range append(p.Install, p.Remove...) {
			if !manifest.ValidID(id) {
				return fmt.Errorf("plan: plan %s names %.40q: %w", d.Name(), id, layer.ErrDamaged)
			}
		}
		if err := s.carryOut(dir, p); err != nil {
			return err
		}
	}
	return nil
}
