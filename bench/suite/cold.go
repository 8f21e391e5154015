package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"thaw/bench/machine"
	"thaw/bench/stats"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// idle is how long a guest is left alone before its VMM's memory is read.
const idle = 200 * time.Millisecond

// coldStarts measures cold starts, and on their machines exec and memory.
func (e *env) coldStarts(ctx context.Context) ([]Metric, error) {
	parts, err := e.guestParts(ctx)
	if err != nil {
		return nil, err
	}
	n := pick(e.cfg.Quick, 12, 40)
	e.say("%d cold starts", n)
	var starts, memory, execs []float64
	phases := map[string][]float64{}
	for i := range n {
		g, err := e.startGuest(ctx, parts)
		if err != nil {
			return nil, err
		}
		starts = append(starts, ms(g.took))
		for _, p := range g.phases() {
			phases[p.Name] = append(phases[p.Name], p.MS)
		}
		if err := e.sample(coldStart, map[string]any{"ms": ms(g.took), "phases": g.phases(), "all": g.process.Phases(), "guest": g.info.Phases}); err != nil {
			return nil, err
		}
		if i >= n-4 {
			time.Sleep(idle)
			mib, err := beyondGuest(g.process.PID())
			if err != nil {
				return nil, err
			}
			memory = append(memory, mib)
			if err := e.sample(vmmRSS, mib); err != nil {
				return nil, err
			}
		}
		if i == n-1 {
			if execs, err = e.execs(ctx, g.client); err != nil {
				return nil, err
			}
		}
		if err := g.close(); err != nil {
			return nil, err
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
	return []Metric{start, distribution(execTrue, millisecond, execs), distribution(vmmRSS, "MiB", memory)}, nil
}

// phaseNames are those of a cold start, in order.
var phaseNames = []string{"process", "jail", "kvm", "kernel load", "kernel", "init", "agent"}

// phases says what a start was spent on. "kernel" is what no clock measured
// apart: the guest's kernel and the way of its ready message.
func (g *guest) phases() []Phase {
	at := map[string]float64{}
	for _, p := range g.process.Phases() {
		at[p.Name] = float64(p.Micros) / 1000
	}
	load := at["machine.kernel_load"]
	kvm := at["machine"] - load
	process := ms(g.started) - at["jail"] - at["machine"]
	var kernelEnd, initEnd, agentEnd float64
	inAgent := false
	for i, p := range g.info.Phases {
		if i == 0 { // PID 1 begins
			kernelEnd = ms(p.At)
		}
		if inAgent = inAgent || p.Name == "agent"; !inAgent {
			initEnd = ms(p.At)
		}
		agentEnd = ms(p.At)
	}
	init, agent := initEnd-kernelEnd, agentEnd-initEnd
	return []Phase{
		{"process", process}, {"jail", at["jail"]}, {"kvm", kvm}, {"kernel load", load},
		{"kernel", ms(g.took) - ms(g.started) - init - agent}, {"init", init}, {"agent", agent},
	}
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
