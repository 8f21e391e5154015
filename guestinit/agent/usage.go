package agent

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/freemem"
	"thaw/guestinit/proc"
)

// Info describes the guest.
func (s *Server) Info() agentproto.Info {
	info := agentproto.Info{
		Version: agentproto.Version, CPUs: int64(runtime.NumCPU()),
		Image:       s.cfg.Image,
		Controllers: s.cfg.Cgroups.Controllers(), Skipped: s.cfg.Cgroups.Skipped(),
		Uptime: uptime(), AgentRSS: proc.Resident(os.Getpid()),
	}
	info.Generation, info.Frozen = s.freezer.state()
	if s.cfg.Phases != nil {
		info.Phases = s.cfg.Phases()
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		info.Kernel = unix.ByteSliceToString(u.Release[:])
		info.Hostname = unix.ByteSliceToString(u.Nodename[:])
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		info.MemTotal = int64(si.Totalram) * int64(si.Unit)
	}
	return info
}

func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// usage returns the machine's counters.
func (s *Server) usage() (agentproto.Usage, error) {
	st, err := s.cfg.Cgroups.Stats()
	if err != nil {
		return agentproto.Usage{}, err
	}
	now := s.cfg.Cgroups.Now()
	u := agentproto.Usage{
		CPU: st.CPU, CPUUser: st.CPUUser, CPUSystem: st.CPUSystem, Wall: uptime(),
		MemoryPeak: st.MemoryPeak, MemoryNow: now.MemoryBytes, OOMKills: st.OOMKills,
		PidsPeak: st.PidsPeak, PidsNow: now.Pids, Execs: int64(s.execCount()),
	}
	if u.MemTotal, u.MemAvailable, err = freemem.Size(); err != nil {
		return agentproto.Usage{}, err
	}
	s.files.AddUsage(&u)
	return u, nil
}
