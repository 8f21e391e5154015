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

	"thaw/guestinit/agentproto"
)

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
