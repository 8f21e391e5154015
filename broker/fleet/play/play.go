// Package play has what is run in a template while it is made, and in a shell before a
// job is: programs like those that jobs bring, as cells and as jobs of warm
// interpreters.
package play

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
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
	"python": {"/usr/bin/python3", "main.py", pythonProgram, "sys.stdin.read()\n"},
	"node":   {"/usr/bin/node", "main.js", nodeProgram, "process.stdin.resume();\n"},
}

// doneLine is what programs write to their standard error when they are through.
const doneLine = "done\n"

// Part is one part of a rehearsal. Each begins with the template as it is.
type Part struct {
	Name string
	Play func(ctx context.Context, client *agentclient.Client) error
}

// Runtimes are those that can be warm.
var Runtimes = []string{"python", "node"}

// RuntimesOf reads which runtimes a guest's description of its image names. An image
// without a description has none.
func RuntimesOf(description []byte) []string {
	var image map[string]any
	if err := json.Unmarshal(description, &image); err != nil {
		return nil
	}
	var out []string
	for _, r := range Runtimes {
		if version, ok := image[r].(string); ok && version != "" {
			out = append(out, r)
		}
	}
	return out
}

// Parts lists what is rehearsed with a template whose warm interpreters have these exec
// ids: a cell and a job in each of its
// warm interpreters, or a program if it has none. env is the image's.
func Parts(warm map[string]uint64, env []string) []Part {
	var jobs, cells []Part
	for _, runtime := range Runtimes {
		id, ok := warm[runtime]
		if !ok {
			continue
		}
		s := scripts[runtime]
		jobs = append(jobs, Part{"play " + runtime + " job", func(ctx context.Context, client *agentclient.Client) error {
			return job(ctx, client, id, s, env)
		}})
		cells = append(cells, Part{"play " + runtime + " cell", func(ctx context.Context, client *agentclient.Client) error {
			_, err := client.Code(ctx, agentproto.CodeRequest{ExecID: id, Source: string(s.program)}, agentclient.ExecIO{})
			return err
		}})
	}
	if jobs == nil {
		return []Part{{"play program", func(ctx context.Context, client *agentclient.Client) error {
			return Program(ctx, client, "/bin/true")
		}}}
	}
	// First the least that every job does: the pages that this writes are what generic
	// shells get ready (Fleet records them); all that others write would take too long.
	first := Part{"play first", func(ctx context.Context, client *agentclient.Client) error {
		for _, id := range warm {
			if _, err := client.Code(ctx, agentproto.CodeRequest{ExecID: id, Source: "1"}, agentclient.ExecIO{}); err != nil {
				return err
			}
		}
		return nil
	}}
	// What a job leaves may be too much to be put back without making the shell cold
	// again: cells leave less, and are last.
	return slices.Concat([]Part{first}, jobs, cells)
}

// Job has a warm interpreter of a runtime become a job, which ends, and takes its
// program away.
func Job(ctx context.Context, client *agentclient.Client, runtime string, id uint64, env []string) error {
	s := scripts[runtime]
	s.wait = ""
	if err := job(ctx, client, id, s, env); err != nil {
		return fmt.Errorf("play: job of %s: %w", runtime, err)
	}
	if err := Program(ctx, client, "/bin/rm", "-f", s.name); err != nil {
		return fmt.Errorf("play: clean up: %w", err)
	}
	return nil
}

// Program runs a program in /workspace.
func Program(ctx context.Context, client *agentclient.Client, argv ...string) error {
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

// job has a warm interpreter become a job, and leaves it when it is through; one
// that does not wait must end well.
func job(ctx context.Context, client *agentclient.Client, id uint64, s script, env []string) error {
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
