package agent

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

func TestTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		tl := tail{max: rng.IntN(50)}
		var all []byte
		for range rng.IntN(20) {
			b := make([]byte, rng.IntN(40))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			all = append(all, b...)
			tl.add(b)
		}
		got, err := io.ReadAll(tl.reader())
		if err != nil {
			t.Fatal(err)
		}
		want := all[max(0, len(all)-tl.max):]
		if !bytes.Equal(got, want) || tl.dropped != int64(len(all)-len(want)) {
			t.Fatalf("max %d: kept %d of %d bytes, dropped %d", tl.max, len(got), len(all), tl.dropped)
		}
		if cap(tl.buf) > 2*tl.max+64 {
			t.Fatalf("tail of %d holds %d bytes", tl.max, cap(tl.buf))
		}
	}
}

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

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for path, mode := range map[string]os.FileMode{
		a + "/prog": 0o644, b + "/prog": 0o755, b + "/plain": 0o644, a + "/dir/x": 0o644,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + a + ":relative:" + b}
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"prog", b + "/prog", nil},
		{"./prog", "./prog", nil},
		{"/x/y", "/x/y", nil},
		{"plain", "", agentproto.ErrPermission},
		{"dir", "", agentproto.ErrNotFound},
		{"none", "", agentproto.ErrNotFound},
	} {
		got, err := lookPath(c.name, env)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestRlimitsNeverExceedRequest(t *testing.T) {
	for _, l := range rlimits(agentproto.Limits{
		CPUSeconds: 1, FileSizeBytes: 2, OpenFiles: 3, StackBytes: 4, AddressSpaceBytes: 5, Processes: 6,
	}) {
		if l.Soft > l.Hard {
			t.Errorf("rlimit %d: soft %d above hard %d", l.Resource, l.Soft, l.Hard)
		}
		if l.Hard > 6 {
			t.Errorf("rlimit %d is %d", l.Resource, l.Hard)
		}
	}
}
