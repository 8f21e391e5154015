package guesttest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// checkpoint freezes, renews (generation.go) and thaws the machine.
func (s *suite) checkpoint(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"FreezeThaw", s.freezeThaw},
		{"FreezeForkBomb", s.freezeForkBomb},
		{"FreezeDeadline", s.freezeDeadline},
		{"ExecWhileFrozen", s.execWhileFrozen},
		{"FrozenExecDies", s.frozenExecDies},
		{"DropCaches", s.dropCaches},
		{"Generation", s.generation},
		{"GenerationThaws", s.generationThaws},
		{"StaleGeneration", s.staleGeneration},
		{"Clock", s.clock},
		{"Identity", s.identity},
		{"LoopbackSurvives", s.loopbackSurvives},
		{"PersistAcross", s.persistAcross},
		{"JobCannot", s.jobCannot},
		{"GenerationTime", s.generationTime},
	} {
		t.Run(c.name, func(t *testing.T) {
			// A case that failed must not leave the others frozen.
			defer func() {
				if err := s.c.Thaw(context.Background()); err != nil {
					t.Errorf("thaw: %v", err)
				}
			}()
			c.run(t)
		})
	}
}

func (s *suite) freeze(t *testing.T) agentproto.FreezeResult {
	t.Helper()
	res, err := s.c.Freeze(context.Background(), agentproto.FreezeRequest{Wait: patience / 2})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// count is a program that counts as fast as it can.
const count = `echo up; i=0; while :; do i=$((i+1)); echo $i >n.tmp; mv n.tmp n; done`

// counter reads how far the counting program is, by the agent.
func (s *suite) counter(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for end := time.Now().Add(patience); ; {
		if _, err := s.c.GetFile(context.Background(), "n", &out, 100); err == nil {
			return out.String()
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
		out.Reset()
	}
}

func (s *suite) freezeThaw(t *testing.T) {
	p := s.start(t, sh(count))
	p.waitFor(t, "up\n")
	before := s.counter(t)
	res := s.freeze(t)
	t.Logf("froze %d execs in %v", res.Execs, res.Took)
	if res.Execs < 1 || res.Took <= 0 {
		t.Errorf("%+v", res)
	}
	if info, err := s.c.Info(context.Background()); err != nil || !info.Frozen {
		t.Errorf("frozen %v, %v", info.Frozen, err)
	}
	frozen := s.counter(t)
	time.Sleep(200 * time.Millisecond)
	if again := s.counter(t); again != frozen {
		t.Errorf("a frozen program counted from %q to %q", frozen, again)
	}
	if again := s.freeze(t); again.Took > res.Took+time.Second {
		t.Errorf("a second freeze took %v", again.Took)
	}
	if err := s.c.Thaw(context.Background()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); s.counter(t) == frozen; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the program does not go on after %q (%q at first)", frozen, before)
		}
	}
	p.Cancel()
	if st, err := p.Wait(); err != nil || st.Cause != agentproto.CauseCancelled {
		t.Errorf("%+v, %v", st, err)
	}
}

// bomb forks as fast as it may. The main process does so only at first: a shell
// that cannot fork ends.
const bomb = `b() { b | b & }; b; echo up; while :; do :; done`

func (s *suite) freezeForkBomb(t *testing.T) {
	req := sh(bomb)
	req.Limits.Pids, req.Limits.Processes = 100, 200
	p := s.start(t, req)
	p.waitFor(t, "up\n")
	time.Sleep(100 * time.Millisecond)
	t.Logf("froze it in %v", s.freeze(t).Took)
	before, err := s.c.Usage(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	after, err := s.c.Usage(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	// What a frozen group uses is what the kernel was about to count.
	if used := after.CPU - before.CPU; used > 50*time.Millisecond {
		t.Errorf("frozen processes used %v of processor time", used)
	}
	// It is killed as it is.
	p.Cancel()
	if st, err := p.Wait(); err != nil || st.Cause != agentproto.CauseCancelled {
		t.Errorf("%+v, %v", st, err)
	}
}

// freezeDeadline gives no time at all: the machine must be as before.
func (s *suite) freezeDeadline(t *testing.T) {
	req := sh(bomb)
	req.Limits.Pids, req.Limits.Processes = 50, 200
	p := s.start(t, req)
	p.waitFor(t, "up\n")
	missed := false
	for range 20 {
		_, err := s.c.Freeze(context.Background(), agentproto.FreezeRequest{Wait: 1})
		switch {
		case err == nil: // faster than it could be
			if err := s.c.Thaw(context.Background()); err != nil {
				t.Fatal(err)
			}
			continue
		case !errors.Is(err, agentproto.ErrFreezeTimeout):
			t.Fatalf("error is %v", err)
		}
		missed = true
		if info, err := s.c.Info(context.Background()); err != nil || info.Frozen {
			t.Errorf("frozen %v after a missed deadline, %v", info.Frozen, err)
		}
		s.shell(t, "true")
	}
	t.Logf("a deadline was missed: %v", missed)
	p.Cancel()
	_, _ = p.Wait()
}

func (s *suite) execWhileFrozen(t *testing.T) {
	s.freeze(t)
	if _, err := s.c.Exec(context.Background(), sh("true"), agentclient.ExecIO{}); !errors.Is(err, agentproto.ErrBusy) {
		t.Errorf("error is %v", err)
	}
	if err := s.c.Thaw(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.shell(t, "true")
}

// frozenExecDies: an exec whose connection is lost while it is frozen, as by a
// restore, is killed as it is.
func (s *suite) frozenExecDies(t *testing.T) {
	p := s.start(t, sh("trap '' TERM HUP; echo up; while :; do sleep 1; done"))
	p.waitFor(t, "up\n")
	s.freeze(t)
	p.Abandon()
	_, _ = p.Wait()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		u, err := s.c.Usage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if u.Execs == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d execs are left", u.Execs)
		}
	}
}

func (s *suite) dropCaches(t *testing.T) {
	s.needMachine(t)
	s.shell(t, "head -c 50000000 /dev/zero >big && cat big >/dev/null")
	before := s.free(t)
	res, err := s.c.Freeze(context.Background(), agentproto.FreezeRequest{Wait: patience / 2, DropCaches: true, ReportFree: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("froze in %v, prepared in %v: %d MiB free, %d before", res.Took, res.Prepared, res.FreeBytes>>20, before>>20)
	if res.FreeBytes < before+20_000_000 {
		t.Errorf("%d bytes are free, %d before", res.FreeBytes, before)
	}
	if err := s.c.Thaw(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.shell(t, "test $(wc -c <big) = 50000000; rm big")
}

// free returns MemFree in bytes.
func (s *suite) free(t *testing.T) int64 {
	t.Helper()
	f := strings.Fields(s.shell(t, "grep MemFree /proc/meminfo"))
	kib, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
