package launch

import (
	"fmt"

	"golang.org/x/sys/unix"

	"thaw/guestinit/reaper"
)

// limitRequest asks for limits of a job that runs.
type limitRequest struct {
	proc   *reaper.Proc
	limits []Rlimit
	answer chan<- error
}

// Limit sets the limits of a job that runs already: a warm interpreter starts
// without those of the job that it becomes. They hold for its other processes
// only from their next start on.
func (l *Launcher) Limit(p *reaper.Proc, limits []Rlimit) error {
	ch := make(chan error, 1)
	select {
	case l.limits <- limitRequest{p, limits, ch}:
	case <-l.done:
		return ErrClosed
	}
	return <-ch
}

// limit does it on the launcher's thread, which has the capability.
func (l *Launcher) limit(req limitRequest) error {
	return req.proc.Do(func(pid int) error {
		for _, r := range req.limits {
			own := l.own[r.Resource].Max
			lim := unix.Rlimit{Cur: min(r.Soft, own), Max: min(r.Hard, own)}
			if err := unix.Prlimit(pid, r.Resource, &lim, nil); err != nil {
				return fmt.Errorf("launch: set rlimit %d of a running job: %w", r.Resource, err)
			}
		}
		return nil
	})
}
