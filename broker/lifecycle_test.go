package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/collect"
)

func ioReader(s string) io.Reader { return strings.NewReader(s) }

const happyPath = "[queued admitted materialising running collecting validating cleaning done]"

// A guest that tells that there are no outputs is not asked for them.
func TestNoOutputs(t *testing.T) {
	for _, none := range []bool{false, true} {
		l := &fakeLauncher{
			script:  func(*fakeProcess) ExitStatus { s := exited(0); s.NoOutputs = none; return s },
			outputs: []collect.File{{Path: "a.txt", Mode: unix.S_IFREG, Size: 2, Links: 1}},
			content: map[string]string{"a.txt": "hi"},
		}
		v := finished(t, submit(t, newBroker(t, l)))
		if asked := v.Result.ArtifactCount > 0; v.State != api.StateDone || asked == none {
			t.Errorf("no outputs %t: state %s, %d artifacts", none, v.State, v.Result.ArtifactCount)
		}
	}
}

func TestJobRuns(t *testing.T) {
	l := &fakeLauncher{
		script: func(p *fakeProcess) ExitStatus {
			fmt.Fprint(p.stdout, "hello\n")
			fmt.Fprint(p.stderr, "oops\n")
			s := exited(3)
			s.Usage.PeakMemoryBytes = 42
			return s
		},
		outputs: []collect.File{{Path: "a.txt", Mode: unix.S_IFREG, Size: 2, Links: 1}, {Path: "l", Mode: unix.S_IFLNK, Links: 1}},
		content: map[string]string{"a.txt": "hi"},
	}
	b := newBroker(t, l)
	j := submit(t, b, func(r *api.JobRequest) { r.Args = []string{"-x"}; r.Env = map[string]string{"TMPDIR": "/w", "K": "v"} })
	v := finished(t, j)
	if states(v) != happyPath {
		t.Errorf("states %s", states(v))
	}
	r := v.Result
	if r.Exit == nil || r.Exit.Code != 3 || r.Error != nil || !r.CleanupOK || r.Stdout.Bytes != 6 || r.Usage.PeakMemoryBytes != 42 {
		t.Errorf("result %+v", r)
	}
	if len(r.Artifacts) != 1 || r.Artifacts[0].MediaType != "text/plain" || len(r.Rejected) != 1 || r.ArtifactCount != 1 || r.RejectedCount != 1 {
		t.Errorf("artifacts %+v, rejected %+v", r.Artifacts, r.Rejected)
	}
	if l := b.Jobs(me)[0].Result; len(l.Artifacts) != 0 || len(l.Rejected) != 0 || l.ArtifactCount != 1 || l.RejectedCount != 1 {
		t.Errorf("listed as %+v", l)
	}
	m := l.last()
	if fmt.Sprint(m.exec.Argv) != "[/usr/bin/python3 main.py -x]" || m.puts["main.py"] != "# main.py" || !m.closed {
		t.Errorf("machine %+v", m)
	}
	env := strings.Join(m.exec.Env, " ")
	if !strings.Contains(env, "TMPDIR=/w") || strings.Contains(env, "TMPDIR=/tmp") || !strings.Contains(env, "K=v") {
		t.Errorf("environment %s", env)
	}
	_, f, err := b.Artifact(me, j.id, "a.txt")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := b.Delete(me, j.id); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(j.dir)); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

func code(t *testing.T, err error) api.Code {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no api.Error", err)
	}
	return e.Code
}

func TestEndings(t *testing.T) {
	hang := untilSignal(0)
	for _, tc := range []struct {
		name     string
		launcher *fakeLauncher
		limits   api.Limits
		act      func(t *testing.T, b *Broker, j *job, l *fakeLauncher)
		state    api.State
		code     api.Code
		signal   int
	}{
		{name: "wall clock, ends on SIGTERM", launcher: &fakeLauncher{script: untilSignal(unix.SIGTERM)}, limits: api.Limits{WallSeconds: 1}, state: api.StateTimedOut, code: api.CodeTimedOut, signal: 15},
		{name: "wall clock, ignores SIGTERM", launcher: &fakeLauncher{script: untilSignal(unix.SIGKILL)}, limits: api.Limits{WallSeconds: 1}, state: api.StateTimedOut, code: api.CodeTimedOut, signal: 9},
		{name: "wall clock, ignores everything", launcher: &fakeLauncher{script: hang}, limits: api.Limits{WallSeconds: 1}, state: api.StateTimedOut, code: api.CodeTimedOut},
		{name: "cancelled", launcher: &fakeLauncher{script: untilSignal(unix.SIGTERM)}, act: cancelRunning, state: api.StateCancelled, code: api.CodeCancelled, signal: 15},
		{name: "thaw-vmm killed", launcher: &fakeLauncher{script: hang}, act: func(t *testing.T, b *Broker, j *job, l *fakeLauncher) {
			waitState(t, j, api.StateRunning)
			l.last().die(MachineExit{Reason: ExitKilled, Detail: "killed by signal 9"})
		}, state: api.StateFailed, code: api.CodeVMMKilled},
		{name: "guest panic", launcher: &fakeLauncher{script: hang}, act: func(t *testing.T, b *Broker, j *job, l *fakeLauncher) {
			waitState(t, j, api.StateRunning)
			l.last().die(MachineExit{Reason: ExitPanic, Console: "Kernel panic - not syncing"})
		}, state: api.StateFailed, code: api.CodeGuestPanic},
		{name: "disk full at put", launcher: &fakeLauncher{putErr: errors.New("no space")}, state: api.StateFailed, code: api.CodeInputRejected},
		{name: "never ready", launcher: &fakeLauncher{launchErr: api.Errorf(api.CodeGuestNotReady, "guest was not ready")}, state: api.StateFailed, code: api.CodeGuestNotReady},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := tc.launcher
			b := newBroker(t, l)
			j := submit(t, b, func(r *api.JobRequest) { r.Limits = tc.limits })
			if tc.act != nil {
				tc.act(t, b, j, l)
			}
			v := finished(t, j)
			if v.State != tc.state || v.Result.Error == nil || v.Result.Error.Code != tc.code {
				t.Fatalf("%s, %+v", v.State, v.Result.Error)
			}
			if got := v.Result.Exit; (got == nil) != (tc.signal == 0) || got != nil && got.Signal != tc.signal {
				t.Errorf("exit %+v, want signal %d", got, tc.signal)
			}
			if m := l.last(); m != nil && !m.closed {
				t.Error("the machine is left")
			}
			if b.pool.Running() != 0 || len(v.Result.Artifacts) != 0 {
				t.Errorf("%d machines still counted, artifacts %v", b.pool.Running(), v.Result.Artifacts)
			}
		})
	}
}

func cancelRunning(t *testing.T, b *Broker, j *job, _ *fakeLauncher) {
	t.Helper()
	waitState(t, j, api.StateRunning)
	if _, err := b.Cancel(me, j.id); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Cancel(me, j.id); code(t, err) != api.CodeConflict {
		t.Errorf("second cancel: %v", err)
	}
}

// A completion that comes after the cancellation changes nothing, wherever in the
// collection the cancellation falls.
func TestLateCompletionNeverOverwritesCancelled(t *testing.T) {
	var b *Broker
	var j *job
	started := make(chan struct{})
	l := &fakeLauncher{
		script:  func(*fakeProcess) ExitStatus { <-started; return exited(0) },
		outputs: []collect.File{{Path: "a", Mode: unix.S_IFREG, Size: 2, Links: 1}}, content: map[string]string{"a": "hi"},
	}
	l.beforeGet = func() {
		if _, err := b.Cancel(me, j.id); err != nil {
			t.Error(err)
		}
	}
	b = newBroker(t, l)
	j = submit(t, b)
	close(started)
	v := finished(t, j)
	if v.State != api.StateCancelled || len(v.Result.Artifacts) != 0 || v.Result.Exit == nil {
		t.Errorf("%s with %+v", v.State, v.Result)
	}
	if left, _ := os.ReadDir(j.dir); len(left) != 0 {
		t.Errorf("artifacts of a cancelled job are left: %v", left)
	}
}

func TestRaceOfCancelAndCompletion(t *testing.T) {
	for i := range 60 {
		l := &fakeLauncher{script: func(*fakeProcess) ExitStatus {
			time.Sleep(time.Duration(i%6) * 100 * time.Microsecond)
			return exited(0)
		}}
		b := newBroker(t, l)
		j := submit(t, b)
		time.Sleep(time.Duration(i%7) * 100 * time.Microsecond)
		_, err := b.Cancel(me, j.id)
		v := finished(t, j)
		if (err == nil) != (v.State == api.StateCancelled) || v.State != api.StateCancelled && v.State != api.StateDone {
			t.Fatalf("cancel said %v and the job is %s", err, v.State)
		}
	}
}

func TestCancelledInTheQueue(t *testing.T) {
	l := &fakeLauncher{script: untilSignal(unix.SIGTERM)}
	b := newBroker(t, l, func(c *Config) { c.Capacity.Machines, c.MaxQueue, c.TenantQueue = 1, 1, 2 })
	first, second := submit(t, b), submit(t, b)
	if _, err := b.Submit(me, request(t, b, "main.py")); code(t, err) != api.CodeQueueFull {
		t.Errorf("third: %v", err)
	}
	if _, err := b.Cancel(me, second.id); err != nil {
		t.Fatal(err)
	}
	if v := finished(t, second); states(v) != "[queued cleaning cancelled]" {
		t.Errorf("states %s", states(v))
	}
	if _, err := b.Cancel(me, first.id); err != nil {
		t.Fatal(err)
	}
	finished(t, first)
}

func TestShutdownEndsJobsTruthfully(t *testing.T) {
	l := &fakeLauncher{script: untilSignal(unix.SIGTERM)}
	b := newBroker(t, l)
	j := submit(t, b)
	waitState(t, j, api.StateRunning)
	if err := b.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := finished(t, j); v.State != api.StateFailed || v.Result.Error.Code != api.CodeDaemonStopping {
		t.Errorf("%s, %v", v.State, v.Result.Error)
	}
	r := request(t, b, "main.py")
	if _, err := b.Submit(me, r); code(t, err) != api.CodeShuttingDown {
		t.Errorf("submit: %v", err)
	}
}

func TestCleanupFailureIsTold(t *testing.T) {
	l := &fakeLauncher{script: func(*fakeProcess) ExitStatus { return exited(0) }, closeErr: errors.New("cgroup is busy")}
	v := finished(t, submit(t, newBroker(t, l)))
	if v.State != api.StateDone || v.Result.CleanupOK || !strings.Contains(v.Result.CleanupErr, "cgroup is busy") {
		t.Errorf("%s, %+v", v.State, v.Result)
	}
}

func TestOutputFloodIsBounded(t *testing.T) {
	l := &fakeLauncher{script: func(p *fakeProcess) ExitStatus {
		chunk := make([]byte, 100<<10)
		for range 50 {
			if _, err := p.stdout.Write(chunk); err != nil {
				t.Error(err)
			}
		}
		return exited(0)
	}}
	v := finished(t, submit(t, newBroker(t, l), func(r *api.JobRequest) { r.Limits.StdoutBytes = 1 << 20 }))
	if o := v.Result.Stdout; o.Bytes != 1<<20 || o.Dropped != 50*100<<10-1<<20 {
		t.Errorf("stdout %+v", o)
	}
}

func TestTenantsDoNotSeeEachOther(t *testing.T) {
	b := newBroker(t, &fakeLauncher{script: func(*fakeProcess) ExitStatus { return exited(0) }})
	r := request(t, b, "main.py")
	if _, err := b.Submit("uid:2", r); code(t, err) != api.CodeUnknownInput {
		t.Errorf("another's input: %v", err)
	}
	j := submit(t, b)
	finished(t, j)
	_, err := b.Job("uid:2", j.id)
	_, cerr := b.Cancel("uid:2", j.id)
	_, eerr := b.Events("uid:2", j.id, 0)
	_, merr := b.Manifest("uid:2", j.id)
	_, _, aerr := b.Artifact("uid:2", j.id, "a")
	for _, err := range []error{err, cerr, eerr, merr, aerr, b.Delete("uid:2", j.id)} {
		if code(t, err) != api.CodeNotFound {
			t.Errorf("another's job: %v", err)
		}
	}
	if len(b.Jobs("uid:2")) != 0 || len(b.Jobs(me)) != 1 {
		t.Error("lists are not scoped")
	}
}

func TestATenantCannotFillTheQueue(t *testing.T) {
	l := &fakeLauncher{script: untilSignal(unix.SIGTERM)}
	b := newBroker(t, l, func(c *Config) { c.Capacity.Machines = 1; c.MaxQueue = 4 })
	for range 3 { // one runs, two wait
		submit(t, b)
	}
	if _, err := b.Submit(me, request(t, b, "main.py")); code(t, err) != api.CodeQuotaExceeded {
		t.Errorf("half of the queue is not the most: %v", err)
	}
	const other = "uid:2"
	in, err := b.AddInput(other, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r := api.JobRequest{Runtime: "python", Script: "main.py", Inputs: []api.InputRef{{Name: "main.py", Input: in.Input}}}
	if _, err := b.Submit(other, r); err != nil {
		t.Errorf("another tenant: %v", err)
	}
}

func TestOldJobsAreRetired(t *testing.T) {
	b := newBroker(t, &fakeLauncher{script: func(*fakeProcess) ExitStatus { return exited(0) }}, func(c *Config) { c.KeepTenantJobs = 2 })
	for range 5 {
		finished(t, submit(t, b))
	}
	if n := len(b.Jobs(me)); n > 3 {
		t.Errorf("%d jobs kept", n)
	}
}

func TestArtifactsOfOldJobsAreBounded(t *testing.T) {
	l := &fakeLauncher{
		script:  func(*fakeProcess) ExitStatus { return exited(0) },
		outputs: []collect.File{{Path: "a", Mode: unix.S_IFREG, Size: 2, Links: 1}}, content: map[string]string{"a": "hi"},
	}
	for most, want := range map[int64]int{1: 1, 5: 2} {
		b := newBroker(t, l, func(c *Config) { c.KeepTenantBytes = most })
		var last *job
		for range 4 {
			last = submit(t, b)
			finished(t, last)
			b.running.Wait() // it is counted when it has ended
		}
		if _, f, err := b.Artifact(me, last.id, "a"); err != nil {
			t.Errorf("of the last job: %v", err)
		} else {
			f.Close()
		}
		if n := len(b.Jobs(me)); n != want {
			t.Errorf("with %d bytes %d jobs are kept, want %d", most, n, want)
		}
	}
}

func TestMissingImageIsRefused(t *testing.T) {
	b := newBroker(t, &fakeLauncher{})
	r := request(t, b, "main.js")
	r.Runtime = "node"
	if _, err := b.Submit(me, r); code(t, err) != api.CodeAssetMissing {
		t.Errorf("got %v", err)
	}
}

func TestImpossibleForTheHost(t *testing.T) {
	b := newBroker(t, &fakeLauncher{}, func(c *Config) {
		c.Capacity = admission.Need{MemoryMiB: 1024, DiskBytes: 2 << 30, CPUMilli: 1000, Machines: 1}
	})
	r := request(t, b, "main.py")
	r.Limits.MemoryMiB = 1000
	if _, err := b.Submit(me, r); code(t, err) != api.CodeLimitImpossible {
		t.Errorf("memory: %v", err)
	}
}
