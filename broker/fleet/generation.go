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
)

// awaken lets a paused machine run with a new generation, and returns the client of
// its agent once that has acknowledged. The request is on its way before the machine
// runs: no round trip is waited for between. After an error the machine must be
// destroyed.
func (f *Fleet) awaken(ctx context.Context, s *shell, hostname string, c *clock) (*agentclient.Client, uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.AckTimeout, errLate)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	ahead, err := s.berth.DialAhead(ctx, agentproto.Port)
	if err != nil {
		return nil, 0, err
	}
	resumed := make(chan struct{})
	var running time.Duration // until the guest ran; read after resumed is closed
	first := berth.NewStarter(ahead, func() {
		go func() {
			defer close(resumed)
			if err := s.proc.Resume(ctx); err != nil {
				fail(err)
			}
			running = time.Since(c.last)
		}()
	})
	client := agentclient.New(s.berth.Dialer(agentproto.Port, first))
	g, err := f.newGeneration(hostname)
	if err != nil {
		ahead.Close()
		return nil, 0, err
	}
	res, err := client.SetGeneration(ctx, g)
	first.Wait(resumed)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // an answer that came too late is none
	}
	if err != nil {
		client.Close()
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return nil, 0, fmt.Errorf("fleet: machine of shell %s: %w: %w", s.berth.ID, ErrNotAcknowledged, err)
	}
	c.part("acknowledge", []Phase{{"until resumed", ms(running)}})
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
