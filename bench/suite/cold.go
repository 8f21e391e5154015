package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"thaw/api"
	"thaw/bench/daemon"
	"thaw/bench/machine"
	"thaw/bench/stats"
	"thaw/client"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// idle is how long a guest is left alone before its VMM's memory is read.
const idle = 200 * time.Millisecond

// machineStarts is how many machines exec and memory are measured on.
const machineStarts = 4

// coldStarts measures cold starts of jobs through a daemon.
func (e *env) coldStarts(ctx context.Context) ([]Metric, error) {
	return e.withDaemon(ctx, e.coldJobs)
}

func (e *env) coldJobs(ctx context.Context, d *daemon.Daemon) ([]Metric, error) {
	in, err := d.Client.AddInput(ctx, strings.NewReader("pass\n"))
	if err != nil {
		return nil, err
	}
	n := pick(e.cfg.Quick, 12, 40)
	e.say("%d cold starts of a job", n)
	var starts []float64
	phases := map[string][]float64{}
	for range n {
		took, parts, err := e.coldJob(ctx, d, in.Input)
		if err != nil {
			return nil, err
		}
		starts = append(starts, took)
		for _, p := range parts {
			phases[p.Name] = append(phases[p.Name], p.MS)
		}
	}
	start := distribution(coldStart, millisecond, starts)
	var list []string
	for _, name := range phaseNames {
		p := Phase{name, stats.Median(phases[name])}
		start.Phases = append(start.Phases, p)
		list = append(list, fmt.Sprintf("%s %.1f", p.Name, p.MS))
	}
	start.Detail = strings.Join(list, ", ")
	return []Metric{start}, nil
}

// coldJob runs one job and returns the milliseconds from the request to its
// agent being ready, and what they were spent on.
func (e *env) coldJob(ctx context.Context, d *daemon.Daemon, input string) (float64, []Phase, error) {
	begin := time.Now()
	job, err := d.Client.Submit(ctx, api.JobRequest{
		Runtime: "python", Script: "main.py", Inputs: []api.InputRef{{Name: "main.py", Input: input}},
	})
	if err != nil {
		return 0, nil, err
	}
	if job, err = d.Client.Follow(ctx, job.ID, client.Watcher{}); err != nil {
		return 0, nil, err
	}
	if job.Result == nil || job.Result.Error != nil {
		return 0, nil, fmt.Errorf("suite: job is %s: %+v", job.State, job.Result)
	}
	at := map[string]float64{}
	for _, p := range job.Result.Phases {
		at[p.Name] = p.MS
	}
	// The daemon's clock is the host's, as ours: its step to "running" ends the
	// start, but for the inputs, which it writes before.
	var running time.Time
	for _, h := range job.History {
		if h.State == api.StateRunning {
			running = h.At
		}
	}
	took := ms(running.Sub(begin)) - at["inputs"]
	parts := startPhases(took, at)
	return took, parts, e.sample(coldStart, map[string]any{"ms": took, "phases": parts, "all": job.Result.Phases})
}

// phaseNames are those of a cold start, in order.
var phaseNames = []string{"daemon", "process", "jail", "kvm", "kernel load", "kernel", "init"}

// startPhases parts a start by what the daemon, the VMM and the guest measured.
// "kernel" is what no clock measured apart: the guest's kernel and the way of
// its ready message.
func startPhases(took float64, at map[string]float64) []Phase {
	var init float64
	for name, v := range at {
		// The first of them, "guest init", is the kernel's time until PID 1.
		if strings.HasPrefix(name, "guest ") && name != "guest init" {
			init += v
		}
	}
	load, process := at["machine.kernel_load"], at["spawn"]+at["receive"]
	kvm := at["machine"] - load
	return []Phase{
		{"daemon", took - at["ready"]}, {"process", process}, {"jail", at["jail"]}, {"kvm", kvm}, {"kernel load", load},
		{"kernel", at["ready"] - process - at["jail"] - at["machine"] - init}, {"init", init},
	}
}

// machines measures exec and memory on machines without a daemon, whose agent
// and process are at hand.
func (e *env) machines(ctx context.Context) ([]Metric, error) {
	parts, err := e.guestParts(ctx)
	if err != nil {
		return nil, err
	}
	var memory, execs []float64
	for i := range machineStarts {
		g, err := e.startGuest(ctx, parts)
		if err != nil {
			return nil, err
		}
		time.Sleep(idle)
		mib, err := beyondGuest(g.process.PID())
		if err != nil {
			return nil, err
		}
		memory = append(memory, mib)
		if err := e.sample(vmmRSS, mib); err != nil {
			return nil, err
		}
		if i == machineStarts-1 {
			if execs, err = e.execsInTime(ctx, g); err != nil {
				return nil, errors.Join(err, g.close())
			}
		}
		if err := g.close(); err != nil {
			return nil, err
		}
	}
	return []Metric{distribution(execTrue, millisecond, execs), distribution(vmmRSS, "MiB", memory)}, nil
}

// execsTimeout bounds them all: a thousand times what one takes.
const execsTimeout = time.Minute

// execsInTime is execs with an end; a guest that does not keep it is described.
func (e *env) execsInTime(ctx context.Context, g *guest) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, execsTimeout)
	defer cancel()
	samples, err := e.execs(ctx, g.client)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("suite: %w: %w", context.Cause(ctx), err)
	}
	return samples, machine.LastWords(ctx, g.process, err)
}

// execs runs true again and again over a warm connection.
func (e *env) execs(ctx context.Context, c *agentclient.Client) ([]float64, error) {
	const warmUp = 5
	n := pick(e.cfg.Quick, 100, 500)
	var samples []float64
	for i := range warmUp + n {
		begin := time.Now()
		p, err := c.Exec(ctx, agentproto.ExecRequest{Argv: []string{"/bin/true"}}, agentclient.ExecIO{})
		if err != nil {
			return nil, err
		}
		s, err := p.Wait()
		took := ms(time.Since(begin))
		if err != nil {
			return nil, err
		}
		if s.Cause != agentproto.CauseExited || s.Code != 0 {
			return nil, fmt.Errorf("suite: true ended with code %d (%s)", s.Code, s.Cause)
		}
		if i < warmUp {
			continue
		}
		samples = append(samples, took)
		if err := e.sample(execTrue, took); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// coldInits measures the time to the first line of a trivial init, in turn on
// both sides.
func (e *env) coldInits(ctx context.Context) ([]Metric, error) {
	program := filepath.Join(e.dir, "trivial-init")
	if err := machine.WriteTrivialInit(program); err != nil {
		return nil, err
	}
	initrd, err := e.initramfs(ctx, program)
	if err != nil {
		return nil, err
	}
	boot := machine.Boot{Kernel: e.kernel, Initrd: initrd, VCPUs: 1, MemoryMiB: 512}
	sides := []machine.Side{e.thaw}
	qemu, missing := e.qemu(ctx)
	if missing == nil {
		sides = append(sides, qemu)
	}
	n := pick(e.cfg.Quick, 10, 30)
	e.say("%d boots of a trivial init on each of %d sides", n, len(sides))
	took := map[string][]float64{}
	for i := range n {
		for j := range sides {
			side := sides[(i+j)%len(sides)]
			d, err := side.UntilLine(ctx, boot, machine.TrivialLine)
			if err != nil {
				return nil, err
			}
			took[side.Name()] = append(took[side.Name()], ms(d))
			if err := e.sample(coldInit, map[string]any{"side": side.Name(), "ms": ms(d)}); err != nil {
				return nil, err
			}
		}
	}
	ours := distribution(coldInit, millisecond, took["thaw"])
	if missing != nil {
		return []Metric{ours}, missing
	}
	vs := ratio(coldInitVS, took["qemu"], took["thaw"])
	vs.Detail = fmt.Sprintf("thaw %.1f ms, qemu %.1f ms", stats.Median(took["thaw"]), stats.Median(took["qemu"]))
	return []Metric{ours, vs}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
