package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"thaw/internal/hostcmd"
)

const (
	serviceLog = "service.log"
	// serviceRunning is Status.Service while there is nothing to tell.
	serviceRunning = "running"
)

// serviceTail returns the end of the service's log for an error.
func serviceTail(stateDir string) string {
	b, err := os.ReadFile(filepath.Join(stateDir, serviceLog))
	if err != nil || len(b) == 0 {
		return ""
	}
	return "\n" + hostcmd.LastLines(string(b), errorLines)
}

// startService runs the options' service in m until it or the lab ends. A
// service that ends by itself is told in the status, not started again: hiding a
// daemon's crash helps nobody.
func (l *Lab) startService(m *machine) {
	if l.opts.Service == nil {
		return
	}
	cmd := *l.opts.Service
	l.wg.Go(func() {
		log, err := os.OpenFile(filepath.Join(l.opts.StateDir, serviceLog), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			l.serviceEnded(m, fmt.Errorf("lab: open log of service: %w", err).Error())
			return
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		exit, err := NewClient(m.dial).Run(l.ctx, cmd)
		switch {
		case l.ctx.Err() != nil:
		case err != nil:
			l.serviceEnded(m, err.Error())
		default:
			l.serviceEnded(m, fmt.Sprintf("ended with exit code %d, see %s", exit, log.Name()))
		}
	})
}

func (l *Lab) serviceEnded(m *machine, how string) {
	l.opts.Log.Error("service in the lab ended", "how", how)
	l.setService(m, how)
}

// setService changes the status only while m is the lab's machine: the end of a
// service that died with its lab is no news about the next one.
func (l *Lab) setService(m *machine, how string) {
	l.mu.Lock()
	current := l.current
	l.mu.Unlock()
	if current == m {
		l.set(func(s *Status) { s.Service = how }, current)
	}
}
