package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"thaw/snapshot/durable"
	"thaw/snapshot/manifest"
)

// A plan makes several renames one step. It is a folder of work/ that holds the
// snapshots to come and a list of all that is to be done:
//
//	work/draft-<id>/       plan.json, <id>/ …   being written; debris after a crash
//	    │ rename, work/ fsynced: decided
//	work/plan-<id>/                             done again by Open after a crash
//	    │ each snapshot to come is renamed into snapshots/, parents first;
//	    │ each snapshot to go is renamed out of it, children first; fsynced
//	(removed)
type plan struct {
	Install []string `json:"install,omitempty"` // parents first
	Remove  []string `json:"remove,omitempty"`  // children first
}

const (
	planName    = "plan.json"
	planPrefix  = "plan-"
	draftPrefix = "draft-"
	gonePrefix  = "gone-"
	maxPlan     = 1 << 20 // bytes of plan.json
)

// newPlan makes the folder of a plan, in which Install's snapshots are written.
func (s *Store) newPlan() (dir string, err error) {
	dir = filepath.Join(s.work(), draftPrefix+manifest.NewID())
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("store: make folder: %w", durable.Full(err))
	}
	return dir, nil
}

// decide writes the plan down and makes it happen, whatever crashes. After an error
// the caller removes dir; decided says whether it is too late for that.
func (s *Store) decide(dir string, p plan) (decided bool, err error) {
	b, err := json.Marshal(p)
	if err != nil {
		return false, fmt.Errorf("store: encode plan: %w", err)
	}
	if err := durable.WriteFile(filepath.Join(dir, planName), b); err != nil {
		return false, err
	}
	if err := durable.SyncDir(dir); err != nil {
		return false, err
	}
	if err := s.at(stepPlanned); err != nil {
		return false, err
	}
	final := filepath.Join(s.work(), planPrefix+strings.TrimPrefix(filepath.Base(dir), draftPrefix))
	if err := os.Rename(dir, final); err != nil {
		return false, fmt.Errorf("store: decide plan: %w", err)
	}
	if err := durable.SyncDir(s.work()); err != nil {
		return true, err
	}
	if err := s.at(stepPlanMade); err != nil {
		return true, err
	}
	return true, s.carryOut(final, p)
}

// carryOut does what of a decided plan is not done yet.
func (s *Store) carryOut(dir string, p plan) error {
	for _, id := range p.Install {
		if err := moved(filepath.Join(dir, id), s.dir(id)); err != nil {
			return err
		}
		if err := s.at(stepPlanMoved); err != nil {
			return err
		}
	}
	for _, id := range p.Remove {
		if err := moved(s.dir(id), filepath.Join(dir, gonePrefix+id)); err != nil {
			return err
		}
		if err := s.at(stepPlanMoved); err != nil {
			return err
		}
	}
	if err := durable.SyncDir(s.snapshots()); err != nil {
		return err
	}
	if err := s.at(stepPlanDone); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("store: remove plan: %w", err)
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
		return fmt.Errorf("store: carry out plan: %w", err)
	}
	return nil
}

// finishPlans carries out the plans that a crash interrupted.
func (s *Store) finishPlans() error {
	list, err := os.ReadDir(s.work())
	if err != nil {
		return fmt.Errorf("store: list work: %w", err)
	}
	for _, d := range list {
		if !strings.HasPrefix(d.Name(), planPrefix) {
			continue
		}
		dir := filepath.Join(s.work(), d.Name())
		b, err := durable.ReadBounded(filepath.Join(dir, planName), maxPlan)
		if errors.Is(err, os.ErrNotExist) {
			continue // its removal was interrupted: all was done
		}
		if err != nil {
			return err
		}
		var p plan
		if err := json.Unmarshal(b, &p); err != nil {
			return fmt.Errorf("store: read plan %s: %w: %w", d.Name(), err, ErrDamaged)
		}
		for _, id := range append(p.Install, p.Remove...) {
			if !manifest.ValidID(id) {
				return fmt.Errorf("store: plan %s names %.40q: %w", d.Name(), id, ErrDamaged)
			}
		}
		if err := s.carryOut(dir, p); err != nil {
			return err
		}
	}
	return nil
}
