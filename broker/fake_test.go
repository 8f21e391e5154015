package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/collect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errGone = errors.New("connection reset")

// fakeLauncher makes fake machines. Its script plays the guest's program.
type fakeLauncher struct {
	script    func(p *fakeProcess) ExitStatus
	launchErr error
	closeErr  error
	putErr    error
	outputs   []collect.File
	content   map[string]string
	beforeGet func()

	mu       sync.Mutex
	machines []*fakeMachine
}

func (l *fakeLauncher) Launch(ctx context.Context, spec LaunchSpec) (Machine, error) {
	if l.launchErr != nil {
		return nil, l.launchErr
	}
	m := &fakeMachine{launcher: l, spec: spec, ended: make(chan struct{}), puts: map[string]string{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.machines = append(l.machines, m)
	return m, nil
}

func (l *fakeLauncher) Check(image string) error {
	if image == "node" {
		return api.Errorf(api.CodeAssetMissing, "image node is missing")
	}
	return nil
}

func (l *fakeLauncher) Assets(images []string) (api.Asset, map[string]api.Asset) {
	m := map[string]api.Asset{}
	for _, i := range images {
		m[i] = api.Asset{Name: i, OK: true}
	}
	return api.Asset{Name: "tuned", OK: true}, m
}

func (l *fakeLauncher) last() *fakeMachine {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.machines) == 0 {
		return nil
	}
	return l.machines[len(l.machines)-1]
}

type fakeMachine struct {
	launcher *fakeLauncher
	spec     LaunchSpec
	once     sync.Once
	ended    chan struct{}
	exit     MachineExit
	puts     map[string]string
	exec     Exec
	closed   bool
}

func (m *fakeMachine) die(x MachineExit) {
	m.once.Do(func() { m.exit = x; close(m.ended) })
}

func (m *fakeMachine) Agent() Agent           { return m }
func (m *fakeMachine) Ended() <-chan struct{} { return m.ended }
func (m *fakeMachine) Exit() MachineExit      { return m.exit }
func (m *fakeMachine) Phases() []api.Phase    { return []api.Phase{{Name: "boot", MS: 1}} }
func (m *fakeMachine) Outputs() collect.Tree  { return m }
func (m *fakeMachine) Close(context.Context) error {
	m.die(MachineExit{Reason: ExitKilled, Detail: "closed"})
	m.closed = true
	return m.launcher.closeErr
}

func (m *fakeMachine) Put(_ context.Context, name string, _ uint32, _ int64, r io.Reader) error {
	if m.launcher.putErr != nil {
		return m.launcher.putErr
	}
	b, err := io.ReadAll(r)
	m.puts[name] = string(b)
	return err
}

func (m *fakeMachine) List(context.Context, int) ([]collect.File, bool, error) {
	return m.launcher.outputs, false, nil
}

func (m *fakeMachine) Read(ctx context.Context, p string, w io.Writer, _ int64) error {
	if m.launcher.beforeGet != nil {
		m.launcher.beforeGet()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	_, err := io.WriteString(w, m.launcher.content[p])
	return err
}

func (m *fakeMachine) Start(_ context.Context, e Exec, stdout, stderr io.Writer) (Process, error) {
	m.exec = e
	p := &fakeProcess{machine: m, stdout: stdout, stderr: stderr, signals: make(chan unix.Signal, 8), done: make(chan ExitStatus, 1)}
	go func() { p.done <- m.launcher.script(p) }()
	return p, nil
}

type fakeProcess struct {
	machine        *fakeMachine
	stdout, stderr io.Writer
	signals        chan unix.Signal
	done           chan ExitStatus
}

func (p *fakeProcess) Signal(s unix.Signal) error {
	select {
	case p.signals <- s:
	default:
	}
	return nil
}

func (p *fakeProcess) Wait() (ExitStatus, error) {
	select {
	case s := <-p.done:
		return s, nil
	case <-p.machine.ended:
		return ExitStatus{}, errGone
	}
}

func exited(code int) ExitStatus {
	return ExitStatus{Exit: api.Exit{Code: code, Cause: "exited"}}
}

// untilSignal plays a program that ends on one signal only.
func untilSignal(want unix.Signal) func(*fakeProcess) ExitStatus {
	return func(p *fakeProcess) ExitStatus {
		for {
			select {
			case s := <-p.signals:
				if s == want {
					return ExitStatus{Exit: api.Exit{Code: 128 + int(s), Signal: int(s), Cause: "signal"}}
				}
			case <-p.machine.ended:
				return ExitStatus{}
			}
		}
	}
}

const me = "uid:1"

func newBroker(t *testing.T, l *fakeLauncher, change ...func(*Config)) *Broker {
	t.Helper()
	cfg := Config{
		StateDir: t.TempDir(), Launcher: l, StopGrace: 30 * time.Millisecond, KillGrace: 30 * time.Millisecond,
		AttachWait: time.Millisecond, StallWait: time.Millisecond,
		Capacity: admission.Need{MemoryMiB: 4096, DiskBytes: 8 << 30, CPUMilli: 8000, Machines: 4},
	}
	for _, c := range change {
		c(&cfg)
	}
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

func request(t *testing.T, b *Broker, names ...string) api.JobRequest {
	t.Helper()
	r := api.JobRequest{Runtime: "python", Script: names[0]}
	for _, n := range names {
		in, err := b.AddInput(me, ioReader("# "+path.Base(n)))
		if err != nil {
			t.Fatal(err)
		}
		r.Inputs = append(r.Inputs, api.InputRef{Name: n, Input: in.Input})
	}
	return r
}

func submit(t *testing.T, b *Broker, change ...func(*api.JobRequest)) *job {
	t.Helper()
	r := request(t, b, "main.py")
	for _, c := range change {
		c(&r)
	}
	v, err := b.Submit(me, r)
	if err != nil {
		t.Fatal(err)
	}
	j, err := b.find(me, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func finished(t *testing.T, j *job) api.Job {
	t.Helper()
	select {
	case <-j.ended:
	case <-time.After(10 * time.Second):
		t.Fatalf("job is stuck in %s", j.view().State)
	}
	return j.view()
}

func waitState(t *testing.T, j *job, s api.State) {
	t.Helper()
	for range 2000 {
		if j.view().State == s {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("job is %s, not %s", j.view().State, s)
}

func states(j api.Job) string {
	var out []api.State
	for _, h := range j.History {
		out = append(out, h.State)
	}
	return fmt.Sprint(out)
}
