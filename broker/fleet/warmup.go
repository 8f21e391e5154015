package fleet

import (
	"context"
	"fmt"

	"thaw/broker/fleet/play"
	"thaw/guestinit/agentproto"
)

// warmUp starts the interpreters that the image has.
func (t *templateBuild) warmUp(ctx context.Context) error {
	client := t.machine.Client()
	info, err := client.Info(ctx)
	if err != nil {
		return fmt.Errorf("fleet: look at guest: %w", err)
	}
	t.warm = map[string]uint64{}
	for _, runtime := range play.RuntimesOf(info.Image) {
		w, err := client.Warm(ctx, agentproto.WarmRequest{Runtime: runtime, Env: t.machine.Env()})
		if err != nil {
			return fmt.Errorf("fleet: warm %s: %w", runtime, err)
		}
		t.warm[runtime] = w.ExecID
		t.clock.done("warm " + runtime)
	}
	return t.play(ctx)
}

// play brings the parts of files into the guest's memory that jobs need first, and
// only those: interpreters that are thrown away run a program after all caches were
// dropped.
func (t *templateBuild) play(ctx context.Context) error {
	client := t.machine.Client()
	ids := map[string]uint64{}
	for runtime := range t.warm {
		w, err := client.Warm(ctx, agentproto.WarmRequest{Runtime: runtime, Env: t.machine.Env()})
		if err != nil {
			return fmt.Errorf("fleet: warm %s: %w", runtime, err)
		}
		ids[runtime] = w.ExecID
	}
	if _, err := client.Freeze(ctx, agentproto.FreezeRequest{DropCaches: true}); err != nil {
		return fmt.Errorf("fleet: drop caches of template: %w", err)
	}
	// A generation, as after each restore: renewing has its own code.
	g, err := t.f.newGeneration("")
	if err != nil {
		return err
	}
	if _, err := client.SetGeneration(ctx, g); err != nil {
		return fmt.Errorf("fleet: first generation of template: %w", err)
	}
	for runtime, id := range ids {
		if err := play.Job(ctx, client, runtime, id, t.machine.Env()); err != nil {
			return err
		}
	}
	// It makes the directory that every job may leave its outputs in.
	if err := play.Program(ctx, client, "/bin/sh", "-c", "mkdir -p out"); err != nil {
		return fmt.Errorf("fleet: play program: %w", err)
	}
	t.clock.done("play")
	return nil
}
