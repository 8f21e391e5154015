package reaper

import (
	"errors"
	"syscall"
)

// Signal sends sig to the process alone.
func (p *Proc) Signal(sig syscall.Signal) error {
	return p.Do(func(pid int) error { return syscall.Kill(pid, sig) })
}

// Do calls f with the id of the process, which stays its own until f returns.
// f must be quick and must not call the Reaper.
func (p *Proc) Do(f func(pid int) error) error {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if p.ended {
		return ErrGone
	}
	err := f(p.PID)
	if errors.Is(err, syscall.ESRCH) {
		return ErrGone
	}
	return err
}
