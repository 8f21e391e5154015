package agent

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

func TestCause(t *testing.T) {
	for _, c := range []struct {
		name string
		f    facts
		want agentproto.Cause
	}{
		{"success", facts{}, agentproto.CauseExited},
		{"failure", facts{code: 1}, agentproto.CauseExited},
		{"success with refused forks", facts{pidsRefused: 1}, agentproto.CauseExited},
		{"success on a full disk", facts{diskFull: true}, agentproto.CauseExited},
		{"success with a file at the limit", facts{fileAtLimit: true}, agentproto.CauseExited},
		{"segfault", facts{signal: unix.SIGSEGV}, agentproto.CauseSignal},
		{"killed", facts{signal: unix.SIGKILL}, agentproto.CauseSignal},
		{"oom", facts{signal: unix.SIGKILL, oomKills: 1}, agentproto.CauseOOM},
		{"starved", facts{forced: agentproto.CauseOOM, signal: unix.SIGKILL}, agentproto.CauseOOM},
		{"starved, but ended well before it was killed", facts{forced: agentproto.CauseOOM}, agentproto.CauseExited},
		{"oom of a child first", facts{code: 137, oomKills: 1}, agentproto.CauseOOM},
		{"timeout", facts{signal: unix.SIGTERM, forced: agentproto.CauseTimeout}, agentproto.CauseTimeout},
		{"timeout handled", facts{forced: agentproto.CauseTimeout}, agentproto.CauseTimeout},
		{"cancelled while out of memory", facts{forced: agentproto.CauseCancelled, signal: unix.SIGKILL, oomKills: 1}, agentproto.CauseCancelled},
		{"cpu by rlimit", facts{signal: unix.SIGXCPU}, agentproto.CauseCPUTime},
		{"cpu by hard rlimit", facts{signal: unix.SIGKILL, cpu: 2 * time.Second, cpuLimit: time.Second}, agentproto.CauseCPUTime},
		{"cpu by the agent", facts{signal: unix.SIGKILL, forced: agentproto.CauseCPUTime}, agentproto.CauseCPUTime},
		{"killed with cpu to spare", facts{signal: unix.SIGKILL, cpu: time.Second / 2, cpuLimit: time.Second}, agentproto.CauseSignal},
		{"file size", facts{signal: unix.SIGXFSZ}, agentproto.CauseFileSize},
		{"file size ignored", facts{code: 1, fileAtLimit: true}, agentproto.CauseFileSize},
		{"pids", facts{code: 2, pidsRefused: 3}, agentproto.CausePidsExhausted},
		{"disk", facts{code: 1, diskFull: true}, agentproto.CauseDiskFull},
	} {
		if got := cause(c.f); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
