package fleet

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// What is rehearsed: programs like those that jobs bring.
var (
	//go:embed rehearsal/main.py
	pythonProgram []byte
	//go:embed rehearsal/main.js
	nodeProgram []byte
)

// script is how a runtime's program is run. As a job it does not end: that would undo
// what is to be left hot.
type script struct {
	interpreter, name string
	program           []byte
	wait              string // what a job ends with: it waits for its standard input's end
}

var scripts = map[string]script{
	"python": {"python3", "main.py", pythonProgram, "sys.stdin.read()\n"},
	"node":   {"node", "main.js", nodeProgram, "process.stdin.resume();\n"},
}

// doneLine is what programs write to their standard error when they are through.
const doneLine = "done\n"

// part is one part of a rehearsal. Each begins with the template as it is.
type part struct {
	name string
	play func(ctx context.Context, client *agentclient.Client) error
}

// partsOf lists what is rehearsed with a template: a cell and a job in each of its
// warm interpreters, or a program if it has none. env is the image's.
func partsOf(im *image, env []string) []part {
	var jobs, cells []part
	for _, runtime := range runtimes {
		id, ok := im.warm[runtime]
		if !ok {
			continue
		}
		s := scripts[runtime]
		jobs = append(jobs, part{"play " + runtime + " job", func(ctx context.Context, client *agentclient.Client) error {
			return playJob(ctx, client, id, s, env)
		}})
		cells = append(cells, part{"play " + runtime + " cell", func(ctx context.Context, client *agentclient.Client) error {
			_, err := client.Code(ctx, agentproto.CodeRequest{ExecID: id, Source: string(s.program)}, agentclient.ExecIO{})
			return err
		}})
	}
	if jobs == nil {
		return []part{{"play program", func(ctx context.Context, client *agentclient.Client) error {
			return playProgram(ctx, client, "/bin/true")
		}}}
	}
	// First the least that every job does: the pages that this writes are what generic
	// shells get ready (see rollBackRehearsal); all that others write would take too long.
	first := part{"play first", func(ctx context.Context, client *agentclient.Client) error {
		for _, id := range im.warm {
			if _, err := client.Code(ctx, agentproto.CodeRequest{ExecID: id, Source: "1"}, agentclient.ExecIO{}); err != nil {
				return err
			}
		}
		return nil
	}}
	// What a job leaves may be too much to be put back without making the shell cold
	// again: cells leave less, and are last.
	return slices.Concat([]part{first}, jobs, cells)
}

// playProgram runs a program in /workspace.
func playProgram(ctx context.Context, client *agentclient.Client, argv ...string) error {
	p, err := client.Exec(ctx, agentproto.ExecRequest{Argv: argv}, agentclient.ExecIO{})
	if err != nil {
		return err
	}
	status, err := p.Wait()
	if err == nil && status.Code != 0 {
		err = fmt.Errorf("%s ended with code %d (%s)", argv[0], status.Code, status.Cause)
	}
	return err
}

// playJob has a warm interpreter become a job, and leaves it when it is through; one
// that does not wait must end well.
func playJob(ctx context.Context, client *agentclient.Client, id uint64, s script, env []string) error {
	program := append(append([]byte(nil), s.program...), s.wait...)
	if err := client.PutFile(ctx, s.name, 0o644, int64(len(program)), bytes.NewReader(program)); err != nil {
		return err
	}
	stdin, hold := io.Pipe()
	defer hold.Close()
	stderr := &watcher{want: []byte(doneLine), seen: make(chan struct{})}
	p, err := client.Run(ctx, agentproto.RunRequest{
		ExecID: id, Argv: []string{s.interpreter, s.name}, Env: env,
	}, agentclient.ExecIO{Stdin: stdin, Stderr: stderr})
	if err != nil {
		return err
	}
	if why := p.Started().Cold; why != "" {
		p.Abandon()
		return fmt.Errorf("%s was run by a fresh interpreter: %.256q", s.name, why)
	}
	ended := make(chan error, 1)
	go func() {
		status, err := p.Wait()
		if err == nil && (s.wait != "" || status.Code != 0) {
			err = fmt.Errorf("%s ended with code %d (%s)", s.name, status.Code, status.Cause)
		}
		ended <- err
	}()
	through := stderr.seen
	if s.wait == "" {
		through = nil
	}
	select {
	case <-through:
		p.Abandon()
		<-ended
		return nil
	case err := <-ended:
		if err != nil {
			err = fmt.Errorf("%w: %.400q", err, stderr.text())
		}
		return err
	}
}

// watcher waits for a line.
type watcher struct {
	want []byte
	seen chan struct{} // closed when it has come
	once sync.Once

	mu  sync.Mutex
	got []byte // protected by mu
}

// maxWatched bounds what is kept of what a guest writes.
const maxWatched = 64 << 10

// Write implements io.Writer.
func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.got = append(w.got, b...); len(w.got) > maxWatched {
		return 0, errors.New("program writes too much")
	}
	if bytes.HasSuffix(w.got, w.want) {
		w.once.Do(func() { close(w.seen) })
	}
	return len(b), nil
}

func (w *watcher) text() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.got)
}
