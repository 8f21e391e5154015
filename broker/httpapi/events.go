package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"thaw/api"
	"thaw/broker/eventlog"
)

// keepAlive is how often a comment is sent on a quiet stream, so that a reader
// that is gone is noticed and what lies between does not time out.
const keepAlive = 15 * time.Second

type eventsInput struct {
	ID    string `path:"id" doc:"Job id" maxLength:"64"`
	After uint64 `header:"Last-Event-ID" doc:"Resume after this event" required:"false"`
}

// eventsOperation declares the stream. Each event's data is one JSON value of the
// schema that its name stands for.
func (h handlers) eventsOperation(a huma.API) huma.Operation {
	var anyOf []*huma.Schema
	for _, v := range []any{api.StateEvent{}, api.OutputEvent{}, api.GapEvent{}, api.Job{}} {
		anyOf = append(anyOf, a.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(v), true, ""))
	}
	return huma.Operation{
		OperationID: "job-events", Method: http.MethodGet, Path: "/v1/jobs/{id}/events",
		Summary: "Follow a job as server-sent events",
		Description: "Events: state (StateEvent), stdout and stderr (OutputEvent), gap (GapEvent), result (Job, the last one). " +
			"The stream starts with what is kept of the past. A reader that is slow slows the program down, within bounds; " +
			"what it misses beyond them, or what is no longer kept when it resumes, is told by a gap event. " +
			"A stream that is not taken for two minutes is cut; a reader resumes it with Last-Event-ID.",
		Errors: []int{http.StatusForbidden, http.StatusNotFound},
		Responses: map[string]*huma.Response{"200": {
			Description: "The stream", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{AnyOf: anyOf}}},
		}},
	}
}

func (h handlers) events(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	r, err := h.broker.Events(tenant, in.ID, in.After)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer r.Close()
		c.SetHeader("Content-Type", "text/event-stream")
		c.SetHeader("Cache-Control", "no-store")
		_, w := humago.Unwrap(c)
		out := newPatientWriter(w, h.stalls.download)
		defer out.done()
		stream(c.Context(), out, r)
	}}, nil
}

// stream writes entries until the log ends or the caller goes away.
func stream(ctx context.Context, w *patientWriter, r *eventlog.Reader) {
	if w.flush() != nil { // headers go out before the first event
		return
	}
	for {
		waitCtx, cancel := context.WithTimeout(ctx, keepAlive)
		e, gap, err := r.Next(waitCtx)
		cancel()
		var buf bytes.Buffer
		switch {
		case err == nil:
			if gap != (eventlog.Gap{}) {
				data, _ := json.Marshal(api.GapEvent{Events: gap.Events, Bytes: gap.Bytes}) // two numbers
				fmt.Fprintf(&buf, "event: %s\ndata: %s\n\n", api.EventGap, data)
			}
			fmt.Fprintf(&buf, "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Type, e.Data)
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			buf.WriteString(": still here\n\n")
		default:
			return
		}
		if _, err := w.Write(buf.Bytes()); err != nil {
			return
		}
		if w.flush() != nil {
			return
		}
	}
}
