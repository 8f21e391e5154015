package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"thaw/internal/unixfd"
	"thaw/lab/labproto"
)

// Files of a state folder.
const (
	initFile    = "init"        // labinit, which the lab's kernel starts
	configFile  = "boot.json"   // labproto.Config
	consoleFile = "console.log" // the lab's serial console
	toolsLog    = "qemu.log"    // what QEMU and virtiofsd print
)

// maxOpenFiles is what virtiofsd takes where the host's hard limit allows it.
const maxOpenFiles = 1 << 20

// machine is one boot of the lab: its processes and the session with labinit.
type machine struct {
	session *yamux.Session
	info    labproto.Info
	qemu    *process
	fs      []*process
	stop    sync.Once
	// dead is closed when QEMU has ended.
	dead chan struct{}
}

// boot starts the processes and returns when labinit has answered. The caller's
// StateDir holds initFile already.
func boot(ctx context.Context, t *Tools, o Options) (*machine, error) {
	ctx, cancel := context.WithTimeout(ctx, o.BootTimeout)
	defer cancel()
	if err := writeConfig(t, o); err != nil {
		return nil, err
	}
	if err := rotate(filepath.Join(o.StateDir, consoleFile)); err != nil {
		return nil, err
	}
	m := &machine{dead: make(chan struct{})}
	if err := m.start(ctx, t, o); err != nil {
		m.close()
		return nil, withLogs(err, o.StateDir)
	}
	return m, nil
}

func (m *machine) start(ctx context.Context, t *Tools, o Options) error {
	log, err := os.Create(filepath.Join(o.StateDir, toolsLog))
	if err != nil {
		return fmt.Errorf("lab: open log: %w", err)
	}
	defer log.Close() // the processes have their own descriptors
	for _, s := range shares(o) {
		p, err := startShare(t, s, log)
		if err != nil {
			return err
		}
		m.fs = append(m.fs, p)
	}
	conn, err := m.startQEMU(t, o, log)
	if err != nil {
		return err
	}
	if err := m.greet(ctx, conn); err != nil {
		conn.Close()
		if ctx.Err() != nil {
			return fmt.Errorf("lab: not up within %v: %w", o.BootTimeout, err)
		}
		return fmt.Errorf("lab: died while starting: %w", err)
	}
	return nil
}

func writeConfig(t *Tools, o Options) error {
	cfg := labproto.Config{ToolRoot: t.Root, Loader: t.loader(), KernelDir: t.kernelDir(), Modules: modules}
	for _, s := range shares(o) {
		if s.writable {
			cfg.Shares = append(cfg.Shares, labproto.Share{Tag: s.tag, Path: s.path})
		}
	}
	b, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("lab: encode configuration: %w", err)
	}
	if err := os.WriteFile(filepath.Join(o.StateDir, configFile), b, 0o600); err != nil {
		return fmt.Errorf("lab: write configuration: %w", err)
	}
	return nil
}

// startShare starts a virtiofsd on a socket that listens already, so that QEMU
// can connect whenever it gets there. virtiofsd ends with its connection.
func startShare(t *Tools, s share, log *os.File) (*process, error) {
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab: remove old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.socket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("lab: listen for share: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("lab: listen for share: %w", err)
	}
	defer f.Close()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("lab: read limit of open files: %w", err)
	}
	p, err := startProcess(s.argv(t, min(limit.Max, maxOpenFiles)), log, f)
	if err != nil {
		return nil, fmt.Errorf("lab: start virtiofsd: %w", err)
	}
	return p, nil
}

// startQEMU starts the emulator and returns the host's end of the channel. A
// socketpair has no name: nobody else on the host can talk to the lab.
func (m *machine) startQEMU(t *Tools, o Options, log *os.File) (net.Conn, error) {
	conn, theirs, err := unixfd.PairConn(unixfd.Stream)
	if err != nil {
		return nil, fmt.Errorf("lab: make channel: %w", err)
	}
	defer theirs.Close()
	m.qemu, err = startProcess(qemuArgv(t, o), log, theirs)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("lab: start QEMU: %w", err)
	}
	go func() {
		<-m.qemu.done
		close(m.dead)
	}()
	return conn, nil
}

// greet waits for labinit's hello, starts the session and asks what the lab is.
func (m *machine) greet(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	hello := make([]byte, len(labproto.Hello))
	if _, err := io.ReadFull(conn, hello); err != nil {
		return fmt.Errorf("lab: wait for init: %w", err)
	}
	if string(hello) != labproto.Hello {
		return fmt.Errorf("lab: init says %q, want %q: another version", hello, labproto.Hello)
	}
	session, err := yamux.Client(conn, labproto.MuxConfig())
	if err != nil {
		return fmt.Errorf("lab: start session: %w", err)
	}
	m.session = session
	info, err := NewClient(m.dial).Info(ctx)
	if err != nil {
		return err
	}
	m.info = info
	return nil
}

func (m *machine) dial(context.Context) (net.Conn, error) {
	s, err := m.session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("lab: open stream: %w", err)
	}
	return s, nil
}

// close ends the machine's processes and waits for them. The lab's file systems
// are memory, and a writable share is written through: there is nothing to sync.
func (m *machine) close() {
	m.stop.Do(func() {
		if m.session != nil {
			m.session.Close()
		}
		if m.qemu != nil {
			m.qemu.kill()
		}
		for _, p := range m.fs {
			p.kill()
		}
	})
}
