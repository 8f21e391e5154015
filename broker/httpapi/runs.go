package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"thaw/api"
	"thaw/broker"
)

const (
	eventStream = "text/event-stream"
	plainJSON   = "application/json"
	// maxRunRequest bounds the body of a cell or program, in bytes: a source of a MiB
	// of two-byte escapes.
	maxRunRequest = 8 << 20
)

// runOperation declares the answer of a cell or a program, in either form.
func (h handlers) runOperation(a huma.API, id, path, summary string) huma.Operation {
	schema := func(v any) *huma.Schema { return a.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, "") }
	o := operation(id, http.MethodPost, path, summary, http.StatusConflict)
	o.MaxBodyBytes = maxRunRequest
	o.Description = "With Accept: text/event-stream the answer is a stream of events: stdout and stderr (OutputEvent) and result (RunResult, the last one); " +
		"a reader that is slow slows the program down. Otherwise it is a RunAnswer. Either ends what runs when the caller goes away. " +
		"Failures after the start are in the result."
	o.Responses = map[string]*huma.Response{"200": {
		Description: "What it wrote and how it ended", Content: map[string]*huma.MediaType{
			eventStream: {Schema: &huma.Schema{AnyOf: []*huma.Schema{schema(api.OutputEvent{}), schema(api.RunResult{})}}},
			plainJSON:   {Schema: schema(api.RunAnswer{})},
		},
	}}
	return o
}

type codeInput struct {
	SandboxPath
	Accept string `header:"Accept" required:"false" doc:"text/event-stream for a stream"`
	Body   api.CodeRequest
}

func (h handlers) code(ctx context.Context, in *codeInput) (*huma.StreamResponse, error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	run, err := h.broker.OpenCode(tenant, in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	return h.run(run, in.Accept), nil
}

type execInput struct {
	SandboxPath
	Accept string `header:"Accept" required:"false" doc:"text/event-stream for a stream"`
	Body   api.ExecRequest
}

func (h handlers) exec(ctx context.Context, in *execInput) (*huma.StreamResponse, error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	run, err := h.broker.OpenExec(tenant, in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	return h.run(run, in.Accept), nil
}

// run answers with what a cell or program does.
func (h handlers) run(r *broker.Run, accept string) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		_, w := humago.Unwrap(c)
		out := newPatientWriter(w, h.stalls.download)
		defer out.done()
		c.SetHeader("Cache-Control", "no-store")
		if strings.Contains(accept, eventStream) {
			c.SetHeader("Content-Type", eventStream)
			streamRun(c.Context(), out, r)
			return
		}
		c.SetHeader("Content-Type", plainJSON)
		var stdout, stderr bytes.Buffer
		result := r.Do(c.Context(), func(name string, v any) error { return collectOutput(&stdout, &stderr, name, v) })
		answer := api.RunAnswer{Stdout: api.NewOutputEvent(stdout.Bytes()), Stderr: api.NewOutputEvent(stderr.Bytes()), Result: result}
		_ = json.NewEncoder(out).Encode(answer) // the caller went away
	}}
}

// collectOutput keeps the output of a run, which bounds it.
func collectOutput(stdout, stderr *bytes.Buffer, name string, v any) error {
	e, ok := v.(api.OutputEvent)
	if !ok {
		return fmt.Errorf("httpapi: event %s holds a %T", name, v)
	}
	b, err := e.Bytes()
	if err != nil {
		return err
	}
	to := stdout
	if name == api.EventStderr {
		to = stderr
	}
	to.Write(b)
	return nil
}

// streamRun sends a run's events as they come, and comments in between.
func streamRun(ctx context.Context, w *patientWriter, r *broker.Run) {
	var mu sync.Mutex
	send := func(text []byte) error {
		mu.Lock()
		defer mu.Unlock()
		if _, err := w.Write(text); err != nil {
			return err
		}
		return w.flush()
	}
	emit := func(name string, v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("httpapi: encode %s event: %w", name, err)
		}
		return send(fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data))
	}
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	over := make(chan struct{})
	var alive sync.WaitGroup
	alive.Go(func() {
		for {
			select {
			case <-quiet.C:
				if send([]byte(": still here\n\n")) != nil {
					return // the next event fails too, and ends the run
				}
			case <-over:
				return
			}
		}
	})
	if w.flush() == nil { // headers go out before the first event
		result := r.Do(ctx, emit)
		_ = emit(api.EventResult, result) // the caller went away
	} else {
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		r.Do(cancelled, emit)
	}
	close(over)
	alive.Wait()
}
