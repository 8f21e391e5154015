package integration

import (
	"bytes"
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/vmm/vmmproc"
)

// TestGuestPanics: a panic ends the machine with its reason and what the
// kernel said last.
func TestGuestPanics(t *testing.T) {
	for _, k := range kernels(t) {
		initrd := archive(t, k, map[string]string{"init": filepath.Join(bin, "runner")})
		t.Run(k.Manifest.Name, func(t *testing.T) {
			m := spec(t, k, shape{1, 512}, initrd)
			m.Cmdline += " runner.panic"
			exit := wait(t, start(t, m), 3*time.Minute)
			if exit.Reason != vmmproc.GuestPanic || !bytes.Contains(exit.Console, []byte("Kernel panic - not syncing")) {
				t.Errorf("machine ended: %s\n%s", exit, exit.Console)
			}
		})
	}
}

// TestKilled: a VMM that is killed from outside is told apart from one that
// crashed.
func TestKilled(t *testing.T) {
	g := bootGuest(t, kernels(t)[0], shape{1, 512}, "python", nil)
	if err := unix.Kill(g.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	exit := wait(t, g.Process, time.Minute)
	if exit.Reason != vmmproc.Signalled || exit.Signal != unix.SIGKILL {
		t.Errorf("machine ended: %s, signal %v", exit, exit.Signal)
	}
}

// TestWallClock: the guest knows the time from the start.
func TestWallClock(t *testing.T) {
	g := bootGuest(t, kernels(t)[0], shape{1, 512}, "python", nil)
	best := time.Hour
	for range 5 {
		before := time.Now()
		out := g.run(t, "date", "+%s%N")
		after := time.Now()
		ns, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		guest := time.Unix(0, ns)
		switch {
		case guest.Before(before):
			best = min(best, before.Sub(guest))
		case guest.After(after):
			best = min(best, guest.Sub(after))
		default:
			best = 0
		}
	}
	if best > 100*time.Millisecond {
		t.Errorf("guest's clock is off by %v", best)
	}
}

// TestMemoryComesBack: pages that the guest frees are reported by its balloon
// driver and return to the host.
func TestMemoryComesBack(t *testing.T) {
	var spec vmmproc.Spec
	g := bootGuest(t, kernels(t)[0], shape{1, 512}, "python", func(s *vmmproc.Spec) { spec = *s })
	used := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(int(spec.Memory.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512 >> 20
	}
	before := used()
	const hog = 256 // MiB
	g.run(t, "python3", "-c", "b = bytearray("+strconv.Itoa(hog)+" << 20)\nfor i in range(0, len(b), 4096): b[i] = 1")
	peak := used()
	if peak < before+hog/2 {
		t.Fatalf("memory in use went from %d to %d MiB: the hog left no trace", before, peak)
	}
	// Linux reports free pages every two seconds, in blocks of 4 MiB.
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		now := used()
		if now < peak-hog/2 {
			t.Logf("MiB in use: %d before, %d at the peak, %d after", before, peak, now)
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d MiB in use, %d at the peak: nothing came back", now, peak)
		}
	}
}

// TestBalloon: asked for memory the guest gives it, says so itself, and takes it
// back when it may.
func TestBalloon(t *testing.T) {
	g := bootGuest(t, kernels(t)[0], shape{1, 512}, "python", nil)
	// free is in MiB. On a host under load an answer may be too late.
	free := func() int64 {
		for deadline := time.Now().Add(time.Minute); ; {
			stats, err := g.MemoryStats(t.Context())
			if err == nil {
				if stats["total_memory"] == 0 || stats["free_memory"] == 0 || stats["available"] == 0 || stats["minor_faults"] == 0 {
					t.Fatalf("statistics %v", stats)
				}
				return int64(stats["free_memory"] >> 20)
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	until := func(what string, enough func(mib int64) bool) {
		for end := time.Now().Add(time.Minute); !enough(free()); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d MiB are free", what, free())
			}
		}
	}
	const target, slack = 128, 32 // MiB
	before := free()
	if err := g.SetBalloon(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	until("inflated", func(mib int64) bool { return mib < before-target+slack })
	// The guest has the same view.
	var meminfo int64
	for line := range strings.Lines(g.run(t, "cat", "/proc/meminfo")) {
		if f := strings.Fields(line); f[0] == "MemFree:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			meminfo = kib >> 10
		}
	}
	if meminfo == 0 || meminfo > before-target+slack {
		t.Errorf("MemFree is %d MiB, was %d before", meminfo, before)
	}
	counters, err := g.Stats(t.Context())
	if err != nil || counters["balloon.inflated"] < target<<8*9/10 {
		t.Errorf("%d pages in the balloon, want %d; %v", counters["balloon.inflated"], target<<8, err)
	}
	if err := g.SetBalloon(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	until("deflated", func(mib int64) bool { return mib > before-slack })
	if err := g.SetBalloon(t.Context(), 513); err == nil {
		t.Error("a balloon larger than the machine")
	}
}

// run runs a program and returns its output; it must succeed.
func (g *guest) run(t *testing.T, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	p, err := g.client.Exec(ctx, agentproto.ExecRequest{Argv: argv}, agentclient.ExecIO{Stdout: &out, Stderr: &errOut})
	if err != nil {
		t.Fatal(err)
	}
	status, err := p.Wait()
	if err != nil || status.Cause != agentproto.CauseExited || status.Code != 0 {
		t.Fatalf("%v: %+v, %v\n%s", argv, status, err, errOut.Bytes())
	}
	return out.String()
}

// TestLongStream: a stream much longer than any buffer on its way arrives
// whole. (A credit count that overtook a newer one once stopped it for good.)
func TestLongStream(t *testing.T) {
	g := bootGuest(t, kernels(t)[0], shape{2, 512}, "python", nil)
	const mib = 256
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out counter
	p, err := g.client.Exec(ctx, agentproto.ExecRequest{
		Argv: []string{"dd", "if=/dev/zero", "bs=1M", "count=" + strconv.Itoa(mib), "status=none"},
	}, agentclient.ExecIO{Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	if status, err := p.Wait(); err != nil || status.Code != 0 {
		t.Fatalf("%+v, %v", status, err)
	}
	if out != mib<<20 {
		t.Errorf("%d bytes arrived, want %d", out, mib<<20)
	}
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
