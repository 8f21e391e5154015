package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/admission"
	"thaw/broker/collect"
	"thaw/broker/httpapi"
	"thaw/client"
)

func TestMain(m *testing.M) {
	// After it has refused a body, the server waits half a second before it closes.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// echo is a launcher whose machines "run" a script by printing its content; the
// artifacts are fixed.
type echo struct {
	broker.Launcher
	files   []collect.File
	content map[string]string
}

func (e echo) Check(string) error { return nil }
func (e echo) Assets([]string) (api.Asset, map[string]api.Asset) {
	return api.Asset{Name: "tuned", OK: true}, map[string]api.Asset{}
}

func (e echo) Launch(context.Context, broker.LaunchSpec) (broker.Machine, error) {
	return &echoMachine{echo: e, ended: make(chan struct{})}, nil
}

type echoMachine struct {
	echo
	script bytes.Buffer
	ended  chan struct{}
}

func (m *echoMachine) Agent() broker.Agent         { return m }
func (m *echoMachine) Ended() <-chan struct{}      { return m.ended }
func (m *echoMachine) Exit() broker.MachineExit    { return broker.MachineExit{Reason: broker.ExitKilled} }
func (m *echoMachine) Phases() []api.Phase         { return nil }
func (m *echoMachine) Close(context.Context) error { close(m.ended); return nil }
func (m *echoMachine) Outputs() collect.Tree       { return m }
func (m *echoMachine) Put(_ context.Context, _ string, _ uint32, _ int64, r io.Reader) error {
	_, err := m.script.ReadFrom(r)
	return err
}

func (m *echoMachine) Start(_ context.Context, _ broker.Exec, stdout, stderr io.Writer) (broker.Process, error) {
	p := &echoProcess{machine: m, stop: make(chan struct{})}
	p.write = func() { io.Copy(stdout, &m.script); fmt.Fprint(stderr, "done\n") }
	p.wait = strings.Contains(m.script.String(), "wait")
	return p, nil
}

func (m *echoMachine) List(context.Context, int) ([]collect.File, bool, error) {
	return m.files, false, nil
}
func (m *echoMachine) Read(_ context.Context, p string, w io.Writer, _ int64) error {
	_, err := io.WriteString(w, m.content[p])
	return err
}

type echoProcess struct {
	machine *echoMachine
	write   func()
	wait    bool
	stop    chan struct{}
}

func (p *echoProcess) Signal(unix.Signal) error { close(p.stop); return nil }
func (p *echoProcess) Wait() (broker.ExitStatus, error) {
	p.write()
	if p.wait {
		select {
		case <-p.stop:
		case <-p.machine.ended:
		}
	}
	return broker.ExitStatus{Exit: api.Exit{Code: 5, Cause: "exited"}}, nil
}

// serve starts a daemon on a socket and returns a client of it.
func serve(t *testing.T, l broker.Launcher, change ...func(*broker.Config)) *client.Client {
	t.Helper()
	return serveBy(t, l, httpapi.NewServer, change...)
}

// serveBy is serve with a server of one's own.
func serveBy(t *testing.T, l broker.Launcher, newServer func(*broker.Broker, *slog.Logger) *http.Server, change ...func(*broker.Config)) *client.Client {
	t.Helper()
	config := broker.Config{
		StateDir: t.TempDir(), Launcher: l, Capacity: admission.Need{MemoryMiB: 4096, DiskBytes: 8 << 30, CPUMilli: 8000, Machines: 4}, InputBytes: 1 << 20,
	}
	for _, c := range change {
		c(&config)
	}
	b, err := broker.New(config)
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := httpapi.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(b, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() { server.Serve(listener); close(done) }()
	c, err := client.New("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := errors.Join(b.Shutdown(context.Background()), server.Close()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return c
}

func submit(t *testing.T, c *client.Client, content string) api.Job {
	t.Helper()
	in, err := c.AddInput(t.Context(), strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.Submit(t.Context(), api.JobRequest{Runtime: "python", Script: "main.py", Inputs: []api.InputRef{{Name: "main.py", Input: in.Input}}})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestAJobOverTheSocket(t *testing.T) {
	c := serve(t, echo{
		files:   []collect.File{{Path: "dir/a b.txt", Mode: unix.S_IFREG, Size: 2, Links: 1}, {Path: "../x", Mode: unix.S_IFREG, Size: 1, Links: 1}},
		content: map[string]string{"dir/a b.txt": "hi"},
	})
	script := strings.Repeat("é", 100_000) + "\xff\x00"
	j := submit(t, c, script)
	var stdout, stderr bytes.Buffer
	var states []api.State
	j, err := c.Follow(t.Context(), j.ID, client.Watcher{
		State:  func(e api.StateEvent) error { states = append(states, e.State); return nil },
		Stdout: func(b []byte) error { stdout.Write(b); return nil },
		Stderr: func(b []byte) error { stderr.Write(b); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if stdout.String() != script || stderr.String() != "done\n" || len(states) != 8 {
		t.Errorf("%d bytes of stdout, stderr %q, states %v", stdout.Len(), &stderr, states)
	}
	if j.State != api.StateDone || j.Result.Exit.Code != 5 || len(j.Result.Rejected) != 1 {
		t.Errorf("job %+v", j)
	}
	out := filepath.Join(t.TempDir(), "out")
	if err := c.SaveArtifacts(t.Context(), j.ID, j.Result.Artifacts, out); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(out, "dir", "a b.txt")); err != nil || string(b) != "hi" {
		t.Errorf("artifact %q, %v", b, err)
	}
	if err := c.Delete(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Job(t.Context(), j.ID); !errors.Is(err, api.Errorf(api.CodeNotFound, "")) {
		t.Errorf("deleted job: %v", err)
	}
}

func TestFollowCanResume(t *testing.T) {
	c := serve(t, echo{})
	j := submit(t, c, "hello")
	stop := errors.New("stop")
	if _, err := c.Follow(t.Context(), j.ID, client.Watcher{Stdout: func([]byte) error { return stop }}); !errors.Is(err, stop) {
		t.Fatalf("got %v", err)
	}
	if j, err := c.Follow(t.Context(), j.ID, client.Watcher{}); err != nil || j.State != api.StateDone {
		t.Errorf("%s, %v", j.State, err)
	}
}

func TestCancelOverTheSocket(t *testing.T) {
	c := serve(t, echo{})
	j := submit(t, c, "wait")
	if _, err := c.Follow(t.Context(), j.ID, client.Watcher{Stdout: func([]byte) error { return errors.New("running") }}); err == nil {
		t.Fatal("the job ended")
	}
	if _, err := c.Cancel(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	if j, err := c.Follow(t.Context(), j.ID, client.Watcher{}); err != nil || j.State != api.StateCancelled {
		t.Errorf("%s, %v", j.State, err)
	}
}

// raw sends a request as bytes, to say what the client cannot.
func raw(t *testing.T, c *client.Client, method, path, body string) (int, string) {
	t.Helper()
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", c.Socket()) }}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://thaw"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestEveryFailureHasTheSameShape(t *testing.T) {
	c := serve(t, echo{})
	const good = `"runtime":"python","script":"main.py","inputs":[{"name":"main.py","input":"x"}]`
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		code               api.Code
		says               string
	}{
		"unknown path":     {"GET", "/v2/x", "", 404, api.CodeNotFound, "/v2/x"},
		"unknown field":    {"POST", "/v1/jobs", `{` + good + `,"gpu":1}`, 422, api.CodeRequestInvalid, "body.gpu"},
		"wrong type":       {"POST", "/v1/jobs", `{"runtime":1,"script":"a","inputs":[]}`, 422, api.CodeRequestInvalid, "body.runtime"},
		"missing field":    {"POST", "/v1/jobs", `{"runtime":"python","inputs":[]}`, 422, api.CodeRequestInvalid, "script"},
		"zero limit":       {"POST", "/v1/jobs", `{` + good + `,"limits":{"wall_seconds":0}}`, 422, api.CodeRequestInvalid, "wall_seconds"},
		"impossible limit": {"POST", "/v1/jobs", `{` + good + `,"limits":{"memory_mib":99999999}}`, 422, api.CodeLimitImpossible, "memory_mib"},
		"unknown runtime":  {"POST", "/v1/jobs", `{"runtime":"ruby","script":"a","inputs":[]}`, 422, api.CodeUnknownProfile, "ruby"},
		"unknown network":  {"POST", "/v1/jobs", `{` + good + `,"network":"all"}`, 422, api.CodeNetworkDenied, "all"},
		"unknown input":    {"POST", "/v1/jobs", `{` + good + `}`, 422, api.CodeUnknownInput, "main.py"},
		"no JSON":          {"POST", "/v1/jobs", `{`, 400, api.CodeBadRequest, ""},
		"empty body":       {"POST", "/v1/jobs", ``, 400, api.CodeBadRequest, ""},
		"huge request":     {"POST", "/v1/jobs", `{"script":"` + strings.Repeat("x", 3<<20) + `"}`, 413, api.CodeRequestInvalid, ""},
		"huge input":       {"POST", "/v1/inputs", strings.Repeat("x", 1<<20+1), 413, api.CodeInputTooLarge, ""},
		"no job":           {"GET", "/v1/jobs/job-x/events", "", 404, api.CodeNotFound, "job-x"},
		"no artifact":      {"GET", "/v1/jobs/job-x/artifacts/..%2f..%2fetc/passwd", "", 404, api.CodeNotFound, ""},
		"bad event id":     {"GET", "/v1/jobs/" + strings.Repeat("x", 100), "", 422, api.CodeRequestInvalid, "path.id"},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := raw(t, c, tc.method, tc.path, tc.body)
			if status != tc.status || !strings.Contains(body, `"code":"`+string(tc.code)+`"`) || !strings.Contains(body, tc.says) || !strings.Contains(body, `"message"`) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}

func TestConnectionsOfAUserAreBounded(t *testing.T) {
	c := serve(t, echo{})
	dial := func() net.Conn {
		conn, err := net.Dial("unix", c.Socket())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		// A request that never ends.
		fmt.Fprint(conn, "POST /v1/inputs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nx")
		return conn
	}
	held := []net.Conn{}
	for range 256 {
		held = append(held, dial())
	}
	if _, err := dial().Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one too many: %v", err)
	}
	for _, conn := range held {
		conn.Close()
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := c.Info(t.Context())
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after all were closed: %v", err)
		}
	}
}

func TestSocketInUseAndStale(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := httpapi.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(socket)
	if err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := httpapi.Listen(socket); !errors.Is(err, api.Errorf(api.CodeSocketInUse, "")) {
		t.Errorf("second daemon: %v", err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	l, err = httpapi.Listen(socket)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	l.Close()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := httpapi.Listen(file); !errors.Is(err, api.Errorf(api.CodeSocketInUse, "")) {
		t.Errorf("a file: %v", err)
	}
}

func TestHostileArtifactNamesAreNotWritten(t *testing.T) {
	c := serve(t, echo{})
	for _, p := range []string{"../escape", "/etc/x", "a/../../b", "a\x00b", ""} {
		dir := filepath.Join(t.TempDir(), "out")
		if err := c.SaveArtifacts(t.Context(), "job-x", []api.Artifact{{Path: p}}, dir); err == nil {
			t.Errorf("%q was written", p)
		}
	}
	// A link that lies where an artifact goes is not followed.
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	if err := c.SaveArtifacts(t.Context(), "job-x", []api.Artifact{{Path: "d/x"}}, dir); err == nil {
		t.Error("a link was followed")
	}
	if e, _ := os.ReadDir(other); len(e) != 0 {
		t.Errorf("files outside: %v", e)
	}
}

// Whatever the guest calls its files, the result reaches the client: it takes no
// event above 16 MiB.
func TestResultsWithHostileNamesArrive(t *testing.T) {
	part := strings.Repeat("<", 250) // six bytes each in JSON
	e := echo{content: map[string]string{}}
	for i := range 10_000 {
		p := fmt.Sprintf("%04d%s/%s/%s/%s", i, part, part, part, part)
		if i%2 == 0 {
			p = "\x1b" + p
		}
		e.files = append(e.files, collect.File{Path: p, Mode: unix.S_IFREG, Links: 1})
	}
	c := serve(t, e)
	in, err := c.AddInput(t.Context(), strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.Submit(t.Context(), api.JobRequest{
		Runtime: "python", Script: "main.py", Inputs: []api.InputRef{{Name: "main.py", Input: in.Input}}, Limits: api.Limits{OutputFiles: 10_000},
	})
	if err != nil {
		t.Fatal(err)
	}
	if j, err = c.Follow(t.Context(), j.ID, client.Watcher{}); err != nil {
		t.Fatal(err)
	}
	r := j.Result
	if r.ArtifactCount+r.RejectedCount != 10_000 || len(r.Artifacts) != r.ArtifactCount || len(r.Rejected) != collect.MaxRejected {
		t.Errorf("%d artifacts, %d rejected: %+v", r.ArtifactCount, r.RejectedCount, r.Error)
	}
}
