package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/workspace"
)

// facts are what the cause of an exec's end is found from.
type facts struct {
	forced      agentproto.Cause // brought about by the agent, or ""
	signal      unix.Signal      // that killed the main process, or 0
	code        int              // exit code if signal is 0
	oomKills    int64
	pidsRefused int64
	cpu         time.Duration // of the whole exec
	cpuLimit    time.Duration // 0 is none
	diskFull    bool
	fileAtLimit bool // a file of exactly the size limit was found
}

// cause decides by the order of the agentproto constants: what somebody asked
// for, then what the kernel killed for, then what explains a failure.
func cause(f facts) agentproto.Cause {
	failed := f.signal != 0 || f.code != 0
	switch {
	case f.forced == agentproto.CauseCancelled, f.forced == agentproto.CauseTimeout:
		return f.forced
	case f.forced == agentproto.CauseOOM && failed, f.signal == unix.SIGKILL && f.oomKills > 0:
		return agentproto.CauseOOM
	case f.forced == agentproto.CauseCPUTime, f.signal == unix.SIGXCPU,
		// Ignored SIGXCPU: the hard limit is one second above.
		f.signal == unix.SIGKILL && f.cpuLimit > 0 && f.cpu >= f.cpuLimit:
		return agentproto.CauseCPUTime
	case f.signal == unix.SIGXFSZ, failed && f.fileAtLimit:
		return agentproto.CauseFileSize
	// With a failed exit but no signal, a child may have been the one killed
	// for memory: oom.group kills all of the exec, so this is a main process
	// that was faster.
	case failed && f.oomKills > 0:
		return agentproto.CauseOOM
	case failed && f.pidsRefused > 0:
		return agentproto.CausePidsExhausted
	case failed && f.diskFull:
		return agentproto.CauseDiskFull
	case f.signal != 0:
		return agentproto.CauseSignal
	}
	return agentproto.CauseExited
}

// status gathers everything about the end of the exec. Preconditions: the main
// process was collected and both outputs are done.
func (e *execution) status(forced agentproto.Cause, wall time.Duration) agentproto.ExitStatus {
	ended := e.proc.Status()
	st, err := e.group.Stats()
	if err != nil {
		e.s.cfg.Log("agent: exec %d: %v", e.id, err)
		st.CPU = time.Duration(ended.Rusage.Utime.Nano() + ended.Rusage.Stime.Nano())
	}
	st.CPU = max(st.CPU-e.spent.Total, 0)
	st.CPUUser, st.CPUSystem = max(st.CPUUser-e.spent.User, 0), max(st.CPUSystem-e.spent.System, 0)
	f := facts{
		forced: forced, oomKills: st.OOMKills, pidsRefused: st.PidsRefused,
		cpu: st.CPU, cpuLimit: time.Duration(e.req.Limits.CPUSeconds)*time.Second - e.spent.Total,
		diskFull: workspace.Full(e.s.cfg.Disks),
	}
	s := agentproto.ExitStatus{
		Code: -1, DiskFull: f.diskFull, PidsHit: st.PidsRefused > 0,
		StdoutBytes: e.stdout.total, StdoutDropped: e.stdout.dropped(),
		StderrBytes: e.stderr.total, StderrDropped: e.stderr.dropped(),
		OutputHeld: e.stdout.held || e.stderr.held,
		OutputLost: e.req.Persist && (e.stdout.lost || e.stderr.lost),
		CoreDumped: ended.Wait.CoreDump(),
	}
	if ended.Wait.Signaled() {
		f.signal = ended.Wait.Signal()
		s.Signal = int32(f.signal)
	} else {
		f.code = ended.Wait.ExitStatus()
		s.Code = int32(f.code)
	}
	if (f.signal != 0 || f.code != 0) && e.req.Limits.FileSizeBytes > 0 {
		f.fileAtLimit = workspace.HasFileOfSize(e.s.cfg.Disks, e.req.Limits.FileSizeBytes, e.started)
	}
	if s.Cause = cause(f); s.Cause == agentproto.CauseOOM {
		s.Detail = e.detail
	}
	s.Usage = agentproto.Usage{
		CPU: st.CPU, CPUUser: st.CPUUser, CPUSystem: st.CPUSystem, Wall: wall,
		MemoryPeak: max(st.MemoryPeak, ended.Rusage.Maxrss<<10), OOMKills: st.OOMKills, PidsPeak: st.PidsPeak,
	}
	e.s.files.AddUsage(&s.Usage)
	s.NoOutputs = e.outputs != "" && e.s.files.Empty(e.outputs)
	return s
}
