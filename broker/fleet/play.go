package fleet

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"

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

// script is how a runtime's program is run.
type script struct {
	interpreter, name string
	program           []byte
}

var scripts = map[string]script{
	"python": {"python3", "main.py", pythonProgram},
	"node":   {"node", "main.js", nodeProgram},
}

// part is one part of a rehearsal. Each begins with the template as it is.
type part struct {
	name string
	play func(ctx context.Context, client *agentclient.Client) error
}

// partsOf lists what is rehearsed with a template: a cell and a job in each of its
// warm interpreters, or a program if it has none. env is the image's.
func partsOf(im *image, env []string) []part {
	var parts []part
	for _, runtime := range runtimes {
		id, ok := im.warm[runtime]
		if !ok {
			continue
		}
		s := scripts[runtime]
		parts = append(parts,
			part{"play " + runtime + " cell", func(ctx context.Context, client *agentclient.Client) error {
				_, err := client.Code(ctx, agentproto.CodeRequest{ExecID: id, Source: string(s.program)}, agentclient.ExecIO{})
				return err
			}},
			part{"play " + runtime + " job", func(ctx context.Context, client *agentclient.Client) error { return playJob(ctx, client, id, s, env) }},
		)
	}
	if parts == nil {
		parts = append(parts, part{"play program", func(ctx context.Context, client *agentclient.Client) error {
			p, err := client.Exec(ctx, agentproto.ExecRequest{Argv: []string{"/bin/true"}}, agentclient.ExecIO{})
			if err != nil {
				return err
			}
			_, err = p.Wait()
			return err
		}})
	}
	return parts
}

// playJob has a warm interpreter become a job.
func playJob(ctx context.Context, client *agentclient.Client, id uint64, s script, env []string) error {
	if err := client.PutFile(ctx, s.name, 0o644, int64(len(s.program)), bytes.NewReader(s.program)); err != nil {
		return err
	}
	var stderr bytes.Buffer
	p, err := client.Run(ctx, agentproto.RunRequest{ExecID: id, Argv: []string{s.interpreter, s.name}, Env: env}, agentclient.ExecIO{Stderr: &stderr})
	if err != nil {
		return err
	}
	status, err := p.Wait()
	if why := p.Started().Cold; err == nil && why != "" {
		err = fmt.Errorf("%s was run by a fresh interpreter: %.256q", s.name, why)
	}
	if err == nil && status.Code != 0 {
		err = fmt.Errorf("%s ended with code %d (%s): %.400q", s.name, status.Code, status.Cause, stderr.Bytes())
	}
	return err
}
