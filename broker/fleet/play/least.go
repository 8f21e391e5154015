package play

import (
	"bytes"
	"context"
	"fmt"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// leastPrograms are jobs that do hardly anything: what they write to the guest's memory,
// each job of the runtime does.
var leastPrograms = map[string]string{"python": "print('least')\n", "node": "console.log('least');\n"}

// leastLimits are a job's as far as they make the guest write: the values do not matter.
var leastLimits = agentproto.Limits{MemoryBytes: 128 << 20, Pids: 64, CPUMilli: 1000}

// leastCap is how much output is kept, in bytes.
const leastCap = 1 << 20

// LeastJob runs a job in a warm interpreter as the broker does, from its script to its very end.
func LeastJob(ctx context.Context, client *agentclient.Client, runtime string, id uint64, env []string) error {
	s, program := scripts[runtime], leastPrograms[runtime]
	if err := client.PutFile(ctx, s.name, 0o644, int64(len(program)), bytes.NewReader([]byte(program))); err != nil {
		return err
	}
	p, err := client.Run(ctx, agentproto.RunRequest{
		ExecID: id, Argv: []string{s.interpreter, s.name}, Env: env, Limits: leastLimits, StdoutCap: leastCap, StderrCap: leastCap, Outputs: "out",
	}, agentclient.ExecIO{})
	if err != nil {
		return err
	}
	status, err := p.Wait()
	if err != nil {
		return err
	}
	if why := p.Started().Cold; why != "" || status.Code != 0 {
		return fmt.Errorf("%s ended with code %d (%s), fresh interpreter: %.256q", s.name, status.Code, status.Cause, why)
	}
	return nil
}
