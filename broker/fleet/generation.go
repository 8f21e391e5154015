package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"thaw/broker/berth"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/vmm/vmmproc"
)

// awaken lets a paused machine run with a new generation, and returns the client of
// its agent once that has acknowledged. The connection to it is on its way before the
// machine runs. After an error the machine must be destroyed.
func (f *Fleet) awaken(ctx context.Context, s *shell, hostname string, c *clock) (*agentclient.Client, uint64, error) {
	ahead, err := s.berth.DialAhead(ctx, agentproto.Port)
	if err != nil {
		return nil, 0, err
	}
	return f.greet(ctx, s, hostname, ahead, c, func(ctx context.Context) error {
		err := s.proc.Resume(ctx)
		c.part("acknowledge", []Phase{{"until resumed", ms(time.Since(c.last))}})
		return err
	})
}

// become gives a shell the content of an image and has it run, as awaken does. phase is
// what the first of it is called in records.
func (f *Fleet) become(ctx context.Context, s *shell, im *image, hostname, phase string, c *clock) (
	restored vmmproc.Restored, client *agentclient.Client, generation uint64, err error,
) {
	ahead, theirs, err := berth.Stream(agentproto.Port)
	if err != nil {
		return restored, nil, 0, err
	}
	defer theirs.Close()
	client, generation, err = f.greet(ctx, s, hostname, ahead, c, func(ctx context.Context) (err error) {
		restored, err = s.become(ctx, f, im, theirs)
		theirs.Close() // where it is not served, ours ends
		c.done(phase, restored.Phases...)
		return err
	})
	return restored, client, generation, err
}

// greet has a machine run by start, sends it its generation through ahead, and waits for
// its acknowledgement. The wall time in it is of when the machine ran already: one that was
// long in the making is not told a clock that is late.
func (f *Fleet) greet(ctx context.Context, s *shell, hostname string, ahead *berth.Conn, c *clock, start func(ctx context.Context) error) (
	*agentclient.Client, uint64, error,
) {
	client := agentclient.New(s.berth.Dialer(agentproto.Port, ahead))
	g, err := f.newGeneration(hostname)
	if err == nil {
		err = start(ctx)
	}
	if err != nil {
		ahead.Close()
		return nil, 0, err
	}
	running := time.Now()
	ctx, cancel := context.WithDeadlineCause(ctx, running.Add(f.cfg.AckTimeout), errLate)
	defer cancel()
	g.Wall = running.UnixNano()
	res, err := client.SetGeneration(ctx, g)
	if err == nil {
		err = context.Cause(ctx) // an answer that came too late is none
	}
	if err != nil {
		client.Close()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, 0, fmt.Errorf("fleet: machine of shell %s: %w: %w", s.berth.ID, ErrNotAcknowledged, err)
	}
	c.part("acknowledge/guest", steps(&res.Steps))
	c.done("acknowledge")
	return client, g.Number, nil
}

// steps lists the guest's own times.
func steps(s *agentproto.GenerationSteps) []Phase {
	return []Phase{
		{"random", ms(s.Random)}, {"clock", ms(s.Clock)}, {"identity", ms(s.Identity)}, {"connections", ms(s.Connections)}, {"file", ms(s.File)},
		{"hooks", ms(s.Hooks)},
	}
}

// errLate is the cause when a guest takes too long.
var errLate = errors.New("no answer in time")

// newGeneration makes a generation with fresh randomness.
func (f *Fleet) newGeneration(hostname string) (agentproto.Generation, error) {
	secret := make([]byte, agentproto.SeedSize+agentproto.MachineIDSize)
	rand.Read(secret) // never fails
	if hostname == "" {
		hostname = "thaw"
	}
	g := agentproto.Generation{
		Number: f.generation.Add(1), Seed: secret[:agentproto.SeedSize], MachineID: secret[agentproto.SeedSize:],
		Wall: time.Now().UnixNano(), Hostname: hostname,
	}
	if err := g.Validate(); err != nil {
		return g, fmt.Errorf("fleet: generation: %w", err)
	}
	return g, nil
}
