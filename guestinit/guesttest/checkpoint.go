package guesttest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// checkpoint freezes, renews and thaws the machine.
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

// next returns a generation that is newer than the machine's.
func (s *suite) next(t *testing.T) agentproto.Generation {
	t.Helper()
	info, err := s.c.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	g := agentproto.Generation{
		Number: info.Generation + 1, Seed: make([]byte, agentproto.SeedSize), Wall: time.Now().UnixNano(),
		Hostname: fmt.Sprintf("sandbox-%d", info.Generation+1), MachineID: make([]byte, agentproto.MachineIDSize),
	}
	rand.Read(g.Seed)
	rand.Read(g.MachineID)
	return g
}

func (s *suite) renew(t *testing.T) (agentproto.Generation, agentproto.GenerationResult) {
	t.Helper()
	g := s.next(t)
	g.Wall = time.Now().UnixNano()
	res, err := s.c.SetGeneration(context.Background(), g)
	if err != nil {
		t.Fatal(err)
	}
	return g, res
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

func (s *suite) freezeForkBomb(t *testing.T) {
	req := sh("echo up; b() { b | b & }; while :; do b; sleep 0.001; done")
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
	req := sh("echo up; b() { b | b & }; while :; do b; sleep 0.001; done")
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

// generation: the kernel's generator gives other numbers, and the number can
// be read.
func (s *suite) generation(t *testing.T) {
	s.needMachine(t)
	g, res := s.renew(t)
	if res.Frozen {
		t.Error("nothing was frozen")
	}
	if got := s.shell(t, "cat /run/thaw/generation"); strings.TrimSpace(got) != strconv.FormatUint(g.Number, 10) {
		t.Errorf("generation is %q, want %d", got, g.Number)
	}
	if info, err := s.c.Info(context.Background()); err != nil || info.Generation != g.Number {
		t.Errorf("generation is %d, %v", info.Generation, err)
	}
	a := s.shell(t, "head -c 32 /dev/urandom | od -An -tx1")
	s.renew(t)
	if b := s.shell(t, "head -c 32 /dev/urandom | od -An -tx1"); a == b {
		t.Errorf("the same random bytes in two generations: %q", a)
	}
}

// generationThaws: frozen processes go on after the acknowledgement, and see
// the new generation from their first instruction.
func (s *suite) generationThaws(t *testing.T) {
	s.needMachine(t)
	p := s.start(t, sh("read old </run/thaw/generation; echo up; while read g </run/thaw/generation; do test $g = $old || exit 0; done; exit 1"))
	p.waitFor(t, "up\n")
	s.freeze(t)
	_, res := s.renew(t)
	if !res.Frozen {
		t.Error("nothing was frozen")
	}
	if st, err := p.Wait(); err != nil || st.Code != 0 || st.Cause != agentproto.CauseExited {
		t.Errorf("%+v, %v", st, err)
	}
	s.shell(t, "true")
}

func (s *suite) staleGeneration(t *testing.T) {
	g, _ := s.renew(t)
	s.freeze(t)
	for _, n := range []uint64{g.Number, g.Number - 1} {
		if g.Number = n; n == 0 {
			continue
		}
		if _, err := s.c.SetGeneration(context.Background(), g); !errors.Is(err, agentproto.ErrStale) {
			t.Errorf("generation %d: %v", n, err)
		}
	}
	if info, err := s.c.Info(context.Background()); err != nil || !info.Frozen {
		t.Errorf("frozen %v after refused generations, %v", info.Frozen, err)
	}
}

// clock: the guest's clock follows the generation's, a month or a day off, and
// programs see it.
func (s *suite) clock(t *testing.T) {
	s.needMachine(t)
	defer s.renew(t) // to what it is
	for _, off := range []time.Duration{30 * 24 * time.Hour, -24 * time.Hour, 0} {
		g := s.next(t)
		before := time.Now()
		g.Wall = before.Add(off).UnixNano()
		res, err := s.c.SetGeneration(context.Background(), g)
		if err != nil {
			t.Fatal(err)
		}
		spent := time.Since(before)
		if d := time.Duration(res.Wall - g.Wall); d < 0 || d > spent+time.Millisecond {
			t.Errorf("clock is %v after that of the generation, %v were spent", d, spent)
		}
		sec, err := strconv.ParseInt(strings.TrimSpace(s.shell(t, "date +%s")), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Unix(sec, 0).Sub(before.Add(off)); d < -time.Second || d > time.Since(before)+time.Second {
			t.Errorf("date is off by %v", d)
		}
	}
}

func (s *suite) identity(t *testing.T) {
	s.needMachine(t)
	g, _ := s.renew(t)
	if got := s.shell(t, "cat /proc/sys/kernel/hostname"); got != g.Hostname+"\n" {
		t.Errorf("hostname is %q, want %q", got, g.Hostname)
	}
	if got := s.shell(t, "cat /etc/machine-id"); got != fmt.Sprintf("%x\n", g.MachineID) {
		t.Errorf("machine id is %q, want %x", got, g.MachineID)
	}
}

// loopbackSurvives: what is within the machine stays.
func (s *suite) loopbackSurvives(t *testing.T) {
	s.needPython(t)
	p := s.start(t, agentproto.ExecRequest{Argv: []string{"python3", "-uc", `
import os, socket, time
pairs = []
for family, addr in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    l = socket.create_server((addr, 0), family=family)
    c = socket.create_connection(l.getsockname()[:2])
    s, _ = l.accept()
    pairs.append((l, c, s))
print("up")
while not os.path.exists("renewed"): time.sleep(0.01)
for l, c, s in pairs:
    c.sendall(b"x" * 1000); assert len(s.recv(1000, socket.MSG_WAITALL)) == 1000
    d = socket.create_connection(l.getsockname()[:2]); l.accept()[0].send(b"y"); assert d.recv(1) == b"y"
print("fine")
`}})
	p.waitFor(t, "up\n")
	s.freeze(t)
	if _, res := s.renew(t); res.Destroyed != 0 {
		t.Errorf("%d connections were destroyed", res.Destroyed)
	}
	s.shell(t, "touch renewed")
	if st, err := p.Wait(); err != nil || st.Code != 0 || p.out.String() != "up\nfine\n" {
		t.Errorf("%+v, %v, %q", st, err, p.out)
	}
	s.shell(t, "rm renewed")
}

// persistAcross is what a restore does to a persistent exec: frozen, its
// connection lost, renewed, attached.
func (s *suite) persistAcross(t *testing.T) {
	s.shell(t, "rm -f go-on")
	p := s.start(t, persistent(sh("echo up; while ! test -e go-on; do sleep 0.01; done; echo rest; exit 9")))
	p.waitFor(t, "up\n")
	s.freeze(t)
	p.Abandon()
	_, _ = p.Wait()
	s.renew(t)
	q, out := s.attachTo(t, p.ExecID())
	s.shell(t, "touch go-on")
	st, err := q.Wait()
	if err != nil || st.Code != 9 || out.String() != "rest\n" || q.Started().StdoutAt != 3 {
		t.Errorf("%+v, %v, %q after %d", st, err, out, q.Started().StdoutAt)
	}
	s.shell(t, "rm go-on")
}

// jobCannot: what a checkpoint is made with is not for jobs.
func (s *suite) jobCannot(t *testing.T) {
	s.needMachine(t)
	for _, script := range []string{
		"echo 1 >/sys/fs/cgroup/jobs/cgroup.freeze",
		"echo 0 >/sys/fs/cgroup/jobs/cgroup.freeze",
		`echo 1 >/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/cgroup.freeze`,
		"echo 5 >/run/thaw/generation",
		"echo 5 >/run/thaw/.generation",
		"touch /run/thaw/x",
		"rm -f /run/thaw/generation",
		"mv /run/thaw/.generation /run/thaw/generation",
		"echo 5 >/etc/machine-id",
		"echo 5 >/run/thaw/machine-id",
		"rm -f /etc/machine-id",
		"echo 3 >/proc/sys/vm/drop_caches",
		"echo x >/proc/sys/kernel/hostname",
		"date -s 2001-01-01",
	} {
		if r := s.run(t, sh(script), ""); r.Code == 0 {
			t.Errorf("%q succeeded", script)
		}
	}
	s.shell(t, "test -r /run/thaw/generation && test -r /etc/machine-id")
}

// generationTime measures, for the log, a ping, the exchange over a connection
// that exists and over a new one, and the steps.
func (s *suite) generationTime(t *testing.T) {
	const n = 50
	steps := map[string][]time.Duration{}
	names := []string{"ping", "exchange", "connected", "random", "clock", "identity", "connections", "file", "hooks", "freeze"}
	for range n {
		g := s.next(t)
		ping := time.Now()
		if err := s.c.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
		steps["ping"] = append(steps["ping"], time.Since(ping))
		steps["freeze"] = append(steps["freeze"], s.freeze(t).Took)
		start := time.Now()
		g.Wall = start.UnixNano()
		res, err := s.c.SetGeneration(context.Background(), g)
		if err != nil {
			t.Fatal(err)
		}
		for name, d := range map[string]time.Duration{
			"exchange": time.Since(start), "random": res.Steps.Random, "clock": res.Steps.Clock, "identity": res.Steps.Identity,
			"connections": res.Steps.Connections, "file": res.Steps.File, "hooks": res.Steps.Hooks,
		} {
			steps[name] = append(steps[name], d)
		}
		// As after a restore: over a new connection.
		g = s.next(t)
		s.freeze(t)
		s.c.CloseIdle()
		start = time.Now()
		g.Wall = start.UnixNano()
		if _, err := s.c.SetGeneration(context.Background(), g); err != nil {
			t.Fatal(err)
		}
		steps["connected"] = append(steps["connected"], time.Since(start))
	}
	for _, name := range names {
		d := steps[name]
		slices.Sort(d)
		t.Logf("%-11s min %v, p50 %v, p95 %v, max %v", name, d[0], d[n/2], d[n*95/100], d[n-1])
	}
}
