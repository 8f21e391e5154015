package boot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agent"
	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
	"thaw/guestinit/generation"
	"thaw/guestinit/launch"
	"thaw/guestinit/reaper"
)

// Workspace is where jobs work, and the only place that file requests reach.
const Workspace = "/workspace"

// reserve is kept from all jobs together, for the agent and the kernel.
const reserve = 32 << 20

// imageFile describes the image; the agent passes it on as it is.
const imageFile = "/etc/thaw/image.json"

// Machine is a booted guest.
type Machine struct {
	Server *agent.Server
	disk   *os.File // of the writable disk, for the end

	mu     sync.Mutex
	phases []agentproto.Phase // protected by mu
}

// Boot makes a machine of the initramfs that this process runs in. It must be
// PID 1, and must be called once, before anything else has started a thread
// that matters to a job.
func Boot(ctx context.Context) (*Machine, error) {
	m := new(Machine)
	m.mark("init")
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"early mounts", mountEarly},
		{"timer slack", setTimerSlack},
		{"console", openConsole},
		{"modules", loadModules},
		{"settings", applySettings},
		{"network", configureNetwork},
		{"disks", mountDisks},
		{"quota", setQuotas},
		{"root", composeRoot},
		{"switch root", switchRoot},
	} {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("boot: %s: %w", step.name, err)
		}
		m.mark(step.name)
	}
	if err := m.startAgent(ctx); err != nil {
		return nil, fmt.Errorf("boot: agent: %w", err)
	}
	return m, nil
}

// mark notes the end of a phase.
func (m *Machine) mark(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phases = append(m.phases, agentproto.Phase{Name: name, At: sinceKernelStart()})
}

// Phases returns the steps of the boot so far.
func (m *Machine) Phases() []agentproto.Phase {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.phases)
}

func sinceKernelStart() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// startAgent makes the server; the caller gives it a listener.
func (m *Machine) startAgent(ctx context.Context) error {
	if err := dropResource(); err != nil {
		return err
	}
	r := reaper.New()
	l, err := launch.New(r)
	if err != nil {
		return err
	}
	m.mark("launcher")
	groups, err := cgroup.New(cgroup.Config{Mount: cgroup.Mount, Name: "jobs", ReserveBytes: reserve})
	if err != nil {
		return err
	}
	m.mark("cgroups")
	image, err := os.ReadFile(imageFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", imageFile, err)
	}
	if m.disk, err = os.Open(Workspace); err != nil {
		return fmt.Errorf("open disk: %w", err)
	}
	renewer, err := generation.New(generation.Dir)
	if err != nil {
		return err
	}
	m.Server, err = agent.New(agent.Config{
		Workspace: Workspace, Disks: []string{Workspace, "/tmp"},
		Launcher: l, Reaper: r, Cgroups: groups,
		Log: Log, Shutdown: m.PowerOff, Image: image, Phases: m.Phases,
		Renewer: renewer,
	})
	if err != nil {
		return err
	}
	go r.Run(ctx)
	m.mark("agent")
	return nil
}

// Serve serves the host until the machine ends.
func (m *Machine) Serve(l net.Listener) error {
	m.mark("listen")
	return m.Server.Serve(l)
}

// Log writes one line to the console.
func Log(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "thaw-init: "+format+"\n", args...)
}
