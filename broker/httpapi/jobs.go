package httpapi

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"thaw/api"
)

// body is a response with one JSON body.
type body[T any] struct{ Body T }

type jobPath struct {
	ID string `path:"id" doc:"Job id" maxLength:"64"`
}

func (h handlers) info(ctx context.Context, _ *struct{}) (*body[api.Info], error) {
	return &body[api.Info]{h.broker.Info()}, nil
}

// rawInput gets at the request's body as a stream: uploads are never held in memory.
type rawInput struct {
	body io.Reader
	conn *http.ResponseController
}

// Resolve implements huma.Resolver.
func (r *rawInput) Resolve(ctx huma.Context) []error {
	req, w := humago.Unwrap(ctx)
	r.body, r.conn = req.Body, http.NewResponseController(w)
	return nil
}

func (h handlers) addInput(ctx context.Context, in *rawInput) (*body[api.Input], error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	got, err := h.broker.AddInput(tenant, &patientReader{in.body, in.conn, h.stalls.upload})
	if err != nil {
		return nil, err
	}
	return &body[api.Input]{got}, nil
}

type inputPath struct {
	Input string `path:"input" doc:"Handle of the upload" maxLength:"64"`
}

func (h handlers) removeInput(ctx context.Context, in *inputPath) (*struct{}, error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	return nil, h.broker.RemoveInput(tenant, in.Input)
}

type jobBody struct{ Body api.JobRequest }

func (h handlers) submit(ctx context.Context, in *jobBody) (*body[api.Job], error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	j, err := h.broker.Submit(tenant, in.Body)
	if err != nil {
		return nil, err
	}
	return &body[api.Job]{j}, nil
}

func (h handlers) jobs(ctx context.Context, _ *struct{}) (*body[api.JobList], error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	return &body[api.JobList]{api.JobList{Jobs: h.broker.Jobs(tenant)}}, nil
}

// oneJob is the shape of show and cancel.
func oneJob(ctx context.Context, id string, do func(tenant, id string) (api.Job, error)) (*body[api.Job], error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	j, err := do(tenant, id)
	if err != nil {
		return nil, err
	}
	return &body[api.Job]{j}, nil
}

func (h handlers) job(ctx context.Context, in *jobPath) (*body[api.Job], error) {
	return oneJob(ctx, in.ID, h.broker.Job)
}

func (h handlers) cancel(ctx context.Context, in *jobPath) (*body[api.Job], error) {
	return oneJob(ctx, in.ID, h.broker.Cancel)
}

func (h handlers) remove(ctx context.Context, in *jobPath) (*struct{}, error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	return nil, h.broker.Delete(tenant, in.ID)
}

func (h handlers) manifest(ctx context.Context, in *jobPath) (*body[api.Manifest], error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	m, err := h.broker.Manifest(tenant, in.ID)
	if err != nil {
		return nil, err
	}
	return &body[api.Manifest]{m}, nil
}

type artifactPath struct {
	ID   string `path:"id" doc:"Job id" maxLength:"64"`
	Path string `path:"path" doc:"Path of the artifact, as the manifest has it" maxLength:"1024"`
}

func (h handlers) artifact(ctx context.Context, in *artifactPath) (*huma.StreamResponse, error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	a, f, err := h.broker.Artifact(tenant, in.ID, in.Path)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer f.Close()
		// Never the detected type: the bytes are hostile and nothing should render them.
		c.SetHeader("Content-Type", "application/octet-stream")
		c.SetHeader("X-Content-Type-Options", "nosniff")
		c.SetHeader("Content-Disposition", "attachment")
		c.SetHeader("Content-Length", strconv.FormatInt(a.Size, 10))
		c.SetHeader("Thaw-Sha256", a.SHA256)
		_, w := humago.Unwrap(c)
		out := newPatientWriter(w, h.stalls.download)
		defer out.done()
		_, _ = io.Copy(out, f) // the caller went away: it sees a short body
	}}, nil
}
