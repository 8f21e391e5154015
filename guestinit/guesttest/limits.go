package guesttest

import (
	"context"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// rlimits checks the limits of the process itself.
func (s *suite) rlimits(t *testing.T) {
	limits := func(l agentproto.Limits, script string) result {
		req := sh(script)
		req.Limits = l
		return s.run(t, req, "")
	}
	t.Run("Values", func(t *testing.T) {
		r := limits(agentproto.Limits{
			CPUSeconds: 7, FileSizeBytes: 1 << 20, OpenFiles: 99, StackBytes: 4 << 20,
			AddressSpaceBytes: 1 << 30, Processes: 55,
		}, "cat /proc/self/limits")
		for _, want := range []string{
			"Max cpu time 7 8 seconds", "Max file size 1048576 1048576 bytes", "Max stack size 4194304 4194304 bytes",
			"Max core file size 0 0 bytes", "Max processes 55 55 processes", "Max open files 99 99 files",
			"Max address space 1073741824 1073741824 bytes",
		} {
			if !strings.Contains(squeeze(r.out), want) {
				t.Errorf("no %q in:\n%s", want, r.out)
			}
		}
	})
	t.Run("Defaults", func(t *testing.T) {
		r := limits(agentproto.Limits{}, "cat /proc/self/limits")
		for _, want := range []string{
			"Max core file size 0 0 bytes", "Max processes 4096 4096 processes",
			"Max cpu time unlimited unlimited seconds", "Max file size unlimited unlimited bytes",
		} {
			if !strings.Contains(squeeze(r.out), want) {
				t.Errorf("no %q in:\n%s", want, r.out)
			}
		}
	})
	t.Run("FileSize", func(t *testing.T) {
		r := limits(agentproto.Limits{FileSizeBytes: 65536}, "exec dd if=/dev/zero of=toobig bs=4096 count=100")
		r.want(t, agentproto.CauseFileSize)
		s.shell(t, "rm -f toobig")
	})
	t.Run("FileSizeIgnored", func(t *testing.T) {
		r := limits(agentproto.Limits{FileSizeBytes: 65536}, "trap '' XFSZ; dd if=/dev/zero of=toobig bs=4096 count=100")
		r.want(t, agentproto.CauseFileSize)
		if r.Signal != 0 {
			t.Errorf("signal is %d", r.Signal)
		}
		s.shell(t, "rm -f toobig")
	})
	t.Run("CPUTime", func(t *testing.T) {
		limits(agentproto.Limits{CPUSeconds: 1}, "while :; do :; done").want(t, agentproto.CauseCPUTime)
	})
	t.Run("CPUTimeIgnored", func(t *testing.T) {
		limits(agentproto.Limits{CPUSeconds: 1}, "trap '' XCPU; while :; do :; done").want(t, agentproto.CauseCPUTime)
	})
	t.Run("CPUTimeOfChildren", func(t *testing.T) {
		// No single process uses its second; together they do.
		r := limits(agentproto.Limits{CPUSeconds: 1},
			"while :; do sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done")
		r.want(t, agentproto.CauseCPUTime)
	})
}

// squeeze makes runs of blanks one blank.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// cgroupLimits checks what needs controllers.
func (s *suite) cgroupLimits(t *testing.T) {
	s.needLimits(t)
	t.Run("OutOfMemory", func(t *testing.T) {
		req := agentproto.ExecRequest{Argv: []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"}}
		req.Limits.MemoryBytes = 32 << 20
		r := s.run(t, req, "")
		r.want(t, agentproto.CauseOOM)
		if r.Usage.OOMKills == 0 || r.Usage.MemoryPeak < 16<<20 || r.Usage.MemoryPeak > 40<<20 {
			t.Errorf("usage is %+v", r.Usage)
		}
	})
	t.Run("OutOfMemoryOfChild", func(t *testing.T) {
		req := sh("dd if=/dev/zero of=/dev/null bs=200M count=1; echo survived")
		req.Limits.MemoryBytes = 32 << 20
		r := s.run(t, req, "")
		r.want(t, agentproto.CauseOOM)
		if strings.Contains(r.out, "survived") {
			t.Error("a half of the exec lived on")
		}
	})
	t.Run("OutOfMemoryInSmallSteps", s.creep)
	t.Run("CacheAtTheLimit", s.cacheAtLimit)
	t.Run("PidsExhausted", func(t *testing.T) {
		req := sh("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 20 & done; wait")
		req.Limits.Pids = 6
		r := s.run(t, req, "")
		r.want(t, agentproto.CausePidsExhausted)
		if !r.PidsHit || r.Usage.PidsPeak > 6 {
			t.Errorf("hit %v, peak %d", r.PidsHit, r.Usage.PidsPeak)
		}
	})
	t.Run("ForkBomb", func(t *testing.T) {
		req := sh("f() { f | f & }; f; sleep 2; exit 1")
		req.Limits.Pids = 50
		req.Timeout = 10 * time.Second
		r := s.run(t, req, "")
		if !r.PidsHit {
			t.Errorf("no fork was refused: %+v", r)
		}
		if err := s.c.Ping(context.Background()); err != nil {
			t.Fatalf("the agent does not answer: %v", err)
		}
	})
	t.Run("CPUQuota", func(t *testing.T) {
		req := sh("while :; do :; done")
		req.Limits.CPUMilli = 200
		req.Timeout = 2 * time.Second
		req.Grace = 100 * time.Millisecond
		r := s.run(t, req, "")
		r.want(t, agentproto.CauseTimeout)
		if share := float64(r.Usage.CPU) / float64(r.Usage.Wall); share > 0.4 {
			t.Errorf("used %.2f of a CPU with a quota of 0.2", share)
		}
	})
	t.Run("LimitsInPlace", func(t *testing.T) {
		req := sh("cd /sys/fs/cgroup$(grep ^0:: /proc/self/cgroup | cut -d: -f3) && cat memory.max memory.oom.group pids.max cpu.max")
		req.Limits = agentproto.Limits{MemoryBytes: 64 << 20, Pids: 20, CPUMilli: 1500}
		if r := s.run(t, req, ""); r.out != "67108864\n1\n20\n150000 100000\n" {
			t.Errorf("limits are %q (%q)", r.out, r.err)
		}
	})
}

// ends checks the ways in which an exec comes to its end.
func (s *suite) ends(t *testing.T) {
	t.Run("Segfault", func(t *testing.T) {
		r := s.run(t, sh("kill -SEGV $$"), "")
		r.want(t, agentproto.CauseSignal)
		if r.Signal != 11 || r.Code != -1 || r.CoreDumped {
			t.Errorf("%+v", r.ExitStatus)
		}
	})
	t.Run("KilledByItself", func(t *testing.T) {
		s.run(t, sh("kill -KILL $$"), "").want(t, agentproto.CauseSignal)
	})
	t.Run("Timeout", func(t *testing.T) {
		req := sh("sleep 60")
		req.Timeout = 200 * time.Millisecond
		r := s.run(t, req, "")
		r.want(t, agentproto.CauseTimeout)
		if r.Signal != 15 || r.Usage.Wall > 20*time.Second {
			t.Errorf("%+v", r.ExitStatus)
		}
	})
	t.Run("TimeoutIgnored", func(t *testing.T) {
		req := sh("trap '' TERM; while :; do sleep 1; done")
		req.Timeout, req.Grace = 200*time.Millisecond, 300*time.Millisecond
		r := s.run(t, req, "")
		r.want(t, agentproto.CauseTimeout)
		if r.Signal != 9 {
			t.Errorf("%+v", r.ExitStatus)
		}
	})
	t.Run("TimeoutHandled", func(t *testing.T) {
		req := sh("trap 'echo bye; exit 3' TERM; echo hi; while :; do sleep 0.05; done")
		req.Timeout, req.Grace = 500*time.Millisecond, 30*time.Second
		r := s.run(t, req, "")
		r.want(t, agentproto.CauseTimeout)
		if r.Code != 3 || r.out != "hi\nbye\n" {
			t.Errorf("code %d, output %q", r.Code, r.out)
		}
	})
	t.Run("Signal", func(t *testing.T) {
		p := s.start(t, sh("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done"))
		p.waitFor(t, "ready\n")
		if err := p.Signal(10); err != nil {
			t.Fatal(err)
		}
		st, err := p.Wait()
		if err != nil || st.Code != 5 || st.Cause != agentproto.CauseExited {
			t.Errorf("%+v, %v", st, err)
		}
	})
	t.Run("Cancel", func(t *testing.T) {
		p := s.start(t, sh("echo ready; sleep 60"))
		p.waitFor(t, "ready\n")
		p.Cancel()
		st, err := p.Wait()
		if err != nil || st.Cause != agentproto.CauseCancelled {
			t.Errorf("%+v, %v", st, err)
		}
	})
	t.Run("CancelByContext", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		p, err := s.c.Exec(ctx, sh("sleep 60"), agentclient.ExecIO{})
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		st, err := p.Wait()
		if err != nil || st.Cause != agentproto.CauseCancelled {
			t.Errorf("%+v, %v", st, err)
		}
	})
	t.Run("BackgroundHoldsStdout", func(t *testing.T) {
		start := time.Now()
		r := s.run(t, sh("sleep 60 & echo done"), "")
		r.want(t, agentproto.CauseExited)
		if r.out != "done\n" || r.Code != 0 || !r.Killed || time.Since(start) > 20*time.Second {
			t.Errorf("%+v after %v", r, time.Since(start))
		}
	})
	t.Run("DaemonIsKilled", func(t *testing.T) {
		r := s.run(t, sh("(trap '' HUP TERM; sleep 61 >/dev/null 2>&1 </dev/null) & exit 0"), "")
		if !r.Killed {
			t.Errorf("%+v", r.ExitStatus)
		}
		if out := s.shell(t, "ps 2>/dev/null | grep '[s]leep 61' || true"); out != "" {
			t.Errorf("it lives: %q", out)
		}
	})
	t.Run("PipelineFinishes", func(t *testing.T) {
		if out := s.shell(t, "(sleep 0.01; echo late) & exit 0"); out != "late\n" {
			t.Errorf("got %q", out)
		}
	})
}
