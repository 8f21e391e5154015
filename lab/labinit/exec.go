package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"thaw/lab/labproto"
)

// defaultPath is where commands are looked for when the host names no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// serveExec runs a command. It answers with an error only before Reply was
// sent; from then on the stream tells everything by its frames.
func serveExec(s net.Conn, r *labproto.Reader, req labproto.Request) error {
	cmd, stdin, err := command(req)
	if err != nil {
		return err
	}
	out := &frameWriter{w: s}
	cmd.Stdout = out.stream(labproto.TypeStdout)
	cmd.Stderr = out.stream(labproto.TypeStderr)
	g, err := start(cmd, out)
	if err != nil {
		return err
	}
	go input(r, g, stdin)
	g.awaitLeader()
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return fmt.Errorf("labinit: wait: %w", err)
	}
	// A host that is gone needs no answer.
	_ = out.json(labproto.TypeExit, exitOf(cmd.ProcessState))
	return nil
}

// start starts cmd and sends its Reply, ahead of any output: the lock is held
// meanwhile.
func start(cmd *exec.Cmd, out *frameWriter) (*group, error) {
	out.mu.Lock()
	defer out.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("labinit: %w", err)
	}
	g := newGroup(cmd.Process.Pid)
	if err := labproto.WriteJSON(out.w, labproto.TypeReply, labproto.Reply{PID: g.id}); err != nil {
		g.signal(unix.SIGKILL) // the host has gone
	}
	return g, nil
}

func command(req labproto.Request) (*exec.Cmd, io.WriteCloser, error) {
	path, err := lookPath(req.Argv[0], req.Env, req.Dir)
	if err != nil {
		return nil, nil, err
	}
	cmd := &exec.Cmd{Path: path, Args: req.Argv, Env: req.Env, Dir: req.Dir}
	if cmd.Env == nil {
		cmd.Env = []string{"PATH=" + defaultPath, "HOME=/root"}
	}
	// A group of its own, to be ended as a whole.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("labinit: make stdin: %w", err)
	}
	return cmd, stdin, nil
}

// lookPath finds a command as a shell would, by the PATH of its environment.
func lookPath(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	list := defaultPath
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			list = v
		}
	}
	for d := range strings.SplitSeq(list, ":") {
		if d == "" {
			d = dir
		}
		p := d + "/" + name
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("labinit: %q: not found in %s", name, list)
}

// input carries the host's frames to the command. At the end of the stream the
// command is killed: after its own end that does nothing.
func input(r *labproto.Reader, g *group, stdin io.WriteCloser) {
	defer g.signal(unix.SIGKILL)
	defer stdin.Close()
	for {
		f, err := r.Read()
		if err != nil {
			return
		}
		switch f.Type {
		case labproto.TypeStdin:
			// A command that closed its stdin loses what comes, as on a pipe.
			_, _ = stdin.Write(f.Data)
		case labproto.TypeCloseStdin:
			stdin.Close()
		default:
			return
		}
	}
}

func exitOf(st *os.ProcessState) labproto.Exit {
	ws, ok := st.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return labproto.Exit{Signal: int(ws.Signal())}
	}
	return labproto.Exit{Code: st.ExitCode()}
}

// frameWriter lets stdout, stderr and the exit status share one stream.
type frameWriter struct {
	mu sync.Mutex
	w  io.Writer // protected by mu
}

func (f *frameWriter) write(t labproto.Type, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return labproto.Write(f.w, t, b)
}

func (f *frameWriter) json(t labproto.Type, v any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return labproto.WriteJSON(f.w, t, v)
}

func (f *frameWriter) stream(t labproto.Type) io.Writer { return outputStream{f, t} }

type outputStream struct {
	f *frameWriter
	t labproto.Type
}

func (o outputStream) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		part := b[n:min(n+labproto.MaxData, len(b))]
		if err := o.f.write(o.t, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(b), nil
}
