package agent

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
)

// await waits for the main process to end and enforces what has a clock:
//
//	         timeout, cancel, cpu time            grace over
//	running ───────────────────────────▶ asked ───────────────▶ killed
//	   │       SIGTERM or SIGXCPU          │     cgroup.kill       │
//	   └───────────────── process ends ────┴───────────────────────┘
//
// New terms start its clocks anew. An exec that is abandoned, or starves at its memory limit, goes to killed at
// once. It returns the cause that the agent itself brought about, or "".
func (e *execution) await() agentproto.Cause {
	var forced agentproto.Cause
	var grace <-chan time.Time
	ask := func(cause agentproto.Cause, sig unix.Signal) {
		if forced != "" {
			return // the first cause counts, and its grace is running
		}
		forced = cause
		_ = e.proc.SignalGroup(sig) // ErrGone: Done is about to fire
		grace = time.After(e.req.Grace)
	}
	timeout := timer(e.req.Timeout)
	cpu := e.cpuTimer(0)
	cancel, abandoned := e.cancel, e.abandoned
	starve := e.group.Starve()
	look := time.NewTicker(cgroup.StarveInterval)
	defer look.Stop()
	for {
		select {
		case <-e.proc.Done():
			return forced
		case <-timeout:
			ask(agentproto.CauseTimeout, unix.SIGTERM)
		case <-cancel:
			cancel = nil
			ask(agentproto.CauseCancelled, unix.SIGTERM)
		case <-cpu:
			used, err := e.group.CPU()
			if err == nil && used.Total >= time.Duration(e.req.Limits.CPUSeconds)*time.Second {
				ask(agentproto.CauseCPUTime, unix.SIGXCPU)
				cpu = nil
				continue
			}
			cpu = e.cpuTimer(used.Total)
		case <-look.C:
			if why := starve.Look(); why != "" && forced == "" {
				forced, e.detail = agentproto.CauseOOM, why
				e.kill()
			}
		case t := <-e.terms:
			e.req.Timeout, e.req.Grace, e.req.Limits.CPUSeconds = t.Timeout, t.Grace, t.CPUSeconds
			if t.job != nil {
				e.started, e.spent, e.req.Limits.FileSizeBytes, e.outputs = t.job.started, t.job.spent, t.job.fileSizeBytes, t.job.outputs
			}
			e.fillDefaults()
			timeout, cpu = timer(t.Timeout), e.cpuTimer(0)
			look.Reset(cgroup.StarveInterval)
			if t.waits {
				look.Reset(waitingInterval)
			}
		case <-abandoned:
			abandoned = nil
			if forced == "" {
				forced = agentproto.CauseCancelled
			}
			e.kill()
		case <-grace:
			e.kill()
		}
	}
}

// waitingInterval is how often an interpreter that waits is looked at: only what a cell left
// running in it can starve. Each look takes a millisecond of a machine that may be one of many.
const waitingInterval = 10 * cgroup.StarveInterval

// timer fires after d, or never if d is 0.
func timer(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// cpuTimer fires when the exec can have used up its processor time at the
// earliest. RLIMIT_CPU counts each process by itself; this counts their sum.
func (e *execution) cpuTimer(used time.Duration) <-chan time.Time {
	if e.req.Limits.CPUSeconds == 0 {
		return nil
	}
	left := time.Duration(e.req.Limits.CPUSeconds)*time.Second - used
	return time.After(max(left/time.Duration(runtime.NumCPU()), 20*time.Millisecond))
}

// kill ends every process of the exec. Where the group cannot be killed, the
// main process's group is.
func (e *execution) kill() {
	if err := e.group.Kill(); err != nil {
		e.s.cfg.Log("agent: exec %d: %v", e.id, err)
		_ = e.proc.SignalGroup(unix.SIGKILL)
	}
}

// drain brings the output to its end after the main process has ended:
// processes that it left behind get a short while, then are killed, so none
// can hold the exec by holding a pipe. What they wrote before is still read
// and sent, as slowly as the host takes it. It reports whether any was
// killed.
func (e *execution) drain() (leftovers bool) {
	if e.stdin != nil {
		e.stdin.close()
	}
	outputs := make(chan struct{})
	go func() {
		<-e.stdout.done
		<-e.stderr.done
		close(outputs)
	}()
	if e.populated() {
		select {
		case <-outputs:
		case <-e.abandoned:
		case <-time.After(e.s.cfg.Drain):
		}
		if leftovers = e.populated(); leftovers {
			e.kill()
			e.waitEmpty()
		}
	}
	// Every writer of the exec is dead or dying. A pipe that still has one
	// was given to a process elsewhere, which is not waited for.
	patience := time.Now().Add(heldPatience)
	e.stdout.stopWaiting(patience)
	e.stderr.stopWaiting(patience)
	<-outputs
	return leftovers
}

// heldPatience is how long an output pipe may stay open and silent after the
// exec's own processes were killed.
const heldPatience = time.Second

// waitEmpty waits for killed processes to die, so that nothing of an exec is
// left when the host hears of its end. One that the kernel holds in a system
// call for long is not waited for.
func (e *execution) waitEmpty() {
	for wait, end := 100*time.Microsecond, time.Now().Add(heldPatience); e.populated() && time.Now().Before(end); wait *= 2 {
		time.Sleep(wait)
	}
}

func (e *execution) populated() bool {
	p, err := e.group.Populated()
	if err != nil {
		e.unsure = true
		e.s.cfg.Log("agent: exec %d: %v", e.id, err)
	}
	return p && err == nil
}
