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
// its agent once that has acknowledged. The request is on its way before the machine
// runs: no round trip is waited for between. After an error the machine must be
// destroyed.
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

// greet sends a machine its generation through ahead, has it run by start, and waits for
// its acknowledgement.
func (f *Fleet) greet(ctx context.Context, s *shell, hostname string, ahead *berth.Conn, c *clock, start func(ctx context.Context) error) (
	*agentclient.Client, uint64, error,
) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	begun := make(chan struct{})
	var failed error      // of start; read after begun is closed
	var running time.Time // since when the machine runs; read after begun is closed
	first := berth.NewStarter(ahead, func() {
		go func() {
			defer close(begun)
			if failed = start(ctx); failed != nil {
				fail(failed)
				return
			}
			running = time.Now()
			late := time.AfterFunc(f.cfg.AckTimeout, func() { fail(errLate) })
			context.AfterFunc(ctx, func() { late.Stop() })
		}()
	})
	client := agentclient.New(s.berth.Dialer(agentproto.Port, first))
	g, err := f.newGeneration(hostname)
	if err != nil {
		ahead.Close()
		return nil, 0, err
	}
	res, err := client.SetGeneration(ctx, g)
	first.Wait(begun)
	// A machine that was long in the making has been told a clock that is late.
	if failed == nil && err == nil && running.Sub(time.Unix(0, g.Wall)) > clockSlack {
		if g, err = f.newGeneration(hostname); err == nil {
			res, err = client.SetGeneration(ctx, g)
		}
	}
	switch {
	case failed != nil:
		client.Close()
		return nil, 0, failed
	case err == nil && time.Since(running) > f.cfg.AckTimeout:
		err = errLate // an answer that came too late is none
	case err == nil:
		err = context.Cause(ctx)
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

// clockSlack is how late a machine's clock may be because of the time that its restore
// took: within the 100 ms that are promised.
const clockSlack = 70 * time.Millisecond

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
