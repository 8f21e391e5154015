package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"thaw/api"
)

// Watcher gets a job's events. Nil functions ignore theirs; an error of one ends
// the following and is returned.
type Watcher struct {
	State  func(api.StateEvent) error
	Stdout func([]byte) error
	Stderr func([]byte) error
	Gap    func(api.GapEvent) error
}

// Reconnection after a stream that broke.
const (
	maxReconnects  = 5
	reconnectPause = 200 * time.Millisecond
)

// Follow passes a job's events to w until the result comes, which it returns. A
// stream that breaks is resumed after the last event.
func (c *Client) Follow(ctx context.Context, id string, w Watcher) (api.Job, error) {
	var last uint64
	for try := 0; ; try++ {
		before := last
		job, done, err := c.follow(ctx, id, &last, w)
		if done || err != nil && !errors.Is(err, errBroken) {
			return job, err
		}
		if last > before {
			try = 0
		}
		if try >= maxReconnects {
			return api.Job{}, fmt.Errorf("client: follow job %s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return api.Job{}, context.Cause(ctx)
		case <-time.After(reconnectPause):
		}
	}
}

var errBroken = errors.New("client: the event stream broke off")

// follow reads one stream. It reports done with the result.
func (c *Client) follow(ctx context.Context, id string, last *uint64, w Watcher) (api.Job, bool, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if *last > 0 {
		header.Set("Last-Event-ID", strconv.FormatUint(*last, 10))
	}
	resp, err := c.do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/events", nil, header)
	if err != nil {
		return api.Job{}, false, err
	}
	defer resp.Body.Close()
	events := newSSEReader(resp.Body)
	for {
		e, err := events.next()
		switch {
		case err != nil && ctx.Err() != nil:
			return api.Job{}, false, context.Cause(ctx)
		case errors.Is(err, errEventTooLarge):
			return api.Job{}, false, err
		case errors.Is(err, io.EOF):
			return api.Job{}, false, errBroken
		case err != nil:
			return api.Job{}, false, fmt.Errorf("%w: %w", errBroken, err)
		}
		if e.name == api.EventResult {
			job, err := decode[api.Job](e)
			return job, err == nil, err
		}
		if err := w.handle(e); err != nil {
			return api.Job{}, false, err
		}
		if e.id > 0 {
			*last = e.id
		}
	}
}

// handle passes one event on. Names that it does not know are of a newer daemon.
func (w Watcher) handle(e event) error {
	switch e.name {
	case api.EventState:
		return pass(e, w.State)
	case api.EventGap:
		return pass(e, w.Gap)
	case api.EventStdout:
		return passOutput(e, w.Stdout)
	case api.EventStderr:
		return passOutput(e, w.Stderr)
	}
	return nil
}

func pass[T any](e event, f func(T) error) error {
	if f == nil {
		return nil
	}
	v, err := decode[T](e)
	if err != nil {
		return err
	}
	return f(v)
}

func passOutput(e event, f func([]byte) error) error {
	if f == nil {
		return nil
	}
	v, err := decode[api.OutputEvent](e)
	if err != nil {
		return err
	}
	b, err := v.Bytes()
	if err != nil {
		return fmt.Errorf("client: %s event: %w", e.name, err)
	}
	return f(b)
}

func decode[T any](e event) (T, error) {
	var v T
	if err := json.Unmarshal(e.data, &v); err != nil {
		return v, fmt.Errorf("client: decode %s event: %w", e.name, err)
	}
	return v, nil
}
