package agent_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agent"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
	"thaw/guestinit/guesttest"
	"thaw/guestinit/launch"
	"thaw/guestinit/reaper"
	"thaw/internal/kvmtest"
)

// fixture is an agent on a Unix socket of this host.
type fixture struct {
	server  *agent.Server
	client  *agentclient.Client
	dir     string // the workspace
	skipped []string
	dial    func(ctx context.Context) (net.Conn, error)
}

// newFixture starts an agent, or skips: it needs root and a cgroup v2
// hierarchy, with or without controllers.
func newFixture(t testing.TB, change func(*agent.Config)) *fixture {
	t.Helper()
	if os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "not root")
	}
	mount := guesttest.CgroupMount(t)
	// Orphans come to us, as they come to PID 1.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	f := &fixture{dir: filepath.Join(base, "workspace")}
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(f.dir, agentproto.DefaultID, agentproto.DefaultID); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r := reaper.New()
	go r.Run(ctx)
	l, err := launch.New(r)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.New(cgroup.Config{Mount: mount, Name: filepath.Base(base)})
	if err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{
		Workspace: f.dir, Disks: []string{f.dir}, Launcher: l, Reaper: r, Cgroups: groups, Log: t.Logf,
		Renewer: renewer{},
	}
	if change != nil {
		change(&cfg)
	}
	if f.server, err = agent.New(cfg); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(base, "agent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(listener) }()
	f.dial = func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", listener.Addr().String())
	}
	f.client = agentclient.New(f.dial)
	f.skipped = groups.Skipped()
	t.Cleanup(func() {
		f.client.Close()
		if err := f.server.Close(); err != nil {
			t.Errorf("close server: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		l.Close()
		if err := groups.Close(); err != nil {
			t.Errorf("close cgroups: %v", err)
		}
	})
	return f
}

// renewer leaves the host as it is.
type renewer struct{}

func (renewer) Renew(g agentproto.Generation) (agentproto.GenerationResult, error) {
	now := time.Now().UnixNano()
	return agentproto.GenerationResult{Number: g.Number, WallBefore: now, Wall: now}, nil
}

func TestGuestSuite(t *testing.T) {
	f := newFixture(t, nil)
	guesttest.Run(t, f.client, guesttest.Options{
		NoLimits:  strings.Join(f.skipped, "; "),
		NoMachine: "this is a host, not a guest",
		Shutdown:  true,
	})
}

func BenchmarkExecTrue(b *testing.B) {
	f := newFixture(b, nil)
	for b.Loop() {
		p, err := f.client.Exec(context.Background(), agentproto.ExecRequest{Argv: []string{"/bin/true"}}, agentclient.ExecIO{})
		if err != nil {
			b.Fatal(err)
		}
		if st, err := p.Wait(); err != nil || st.Code != 0 {
			b.Fatalf("%+v, %v", st, err)
		}
	}
}
