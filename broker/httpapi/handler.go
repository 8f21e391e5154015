package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"thaw/api"
	"thaw/broker"
)

// apiVersion is the version of the interface, not of the program.
const apiVersion = "1.0.0"

// maxJobRequest bounds the body of a job request, in bytes.
const maxJobRequest = 2 << 20

// handlers are the operations' receivers.
type handlers struct {
	broker *broker.Broker
	stalls stalls
}

// Handler serves every operation, and answers unknown paths in the shape of the rest.
func Handler(b *broker.Broker) http.Handler { return handler(handlers{b, defaultStalls}) }

func handler(h handlers) http.Handler {
	mux := http.NewServeMux()
	register(mux, h)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		e := api.Errorf(api.CodeNotFound, "there is no %s %s", r.Method, r.URL.Path).WithRemedy("GET /openapi.json describes the interface")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(e.GetStatus())
		_ = json.NewEncoder(w).Encode(e) // the caller went away
	})
	return mux
}

// Document is the OpenAPI 3.1 document of the operations, indented.
func Document() ([]byte, error) {
	a := register(http.NewServeMux(), handlers{})
	b, err := json.MarshalIndent(a.OpenAPI(), "", "  ")
	return append(b, '\n'), err
}

// restOfPath makes {path} of an operation match several path parts: the document
// language has no way to say so, the mux does.
type restOfPath struct{ *http.ServeMux }

func (m restOfPath) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	m.ServeMux.HandleFunc(strings.Replace(pattern, "{path}", "{path...}", 1), h)
}

func register(mux *http.ServeMux, h handlers) huma.API {
	useOurErrors()
	config := huma.DefaultConfig("Thaw", apiVersion)
	config.Info.Description = "Runs Python and Node programs in microVMs. Served on a Unix socket; the caller is the user who connects. " +
		"Every failure has the body of the Error schema; its code is stable."
	config.CreateHooks = nil // no $schema links in bodies
	config.DocsPath, config.SchemasPath = "", ""
	a := humago.New(restOfPath{mux}, config)
	errs := []int{http.StatusForbidden, http.StatusNotFound}
	op := func(id, method, path, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Errors: errs}
	}
	huma.Register(a, op("info", http.MethodGet, "/v1/info", "Describe the daemon and its host"), h.info)

	in := op("add-input", http.MethodPost, "/v1/inputs", "Upload a file for jobs; the body is its content")
	in.DefaultStatus = http.StatusCreated
	in.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
	}}
	in.Errors = append(in.Errors, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests)
	huma.Register(a, in, h.addInput)
	huma.Register(a, op("remove-input", http.MethodDelete, "/v1/inputs/{input}", "Delete an upload, once no job needs it"), h.removeInput)

	job := op("submit-job", http.MethodPost, "/v1/jobs", "Queue a job")
	job.DefaultStatus = http.StatusCreated
	job.MaxBodyBytes = maxJobRequest
	job.Errors = append(job.Errors, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable)
	huma.Register(a, job, h.submit)
	huma.Register(a, op("list-jobs", http.MethodGet, "/v1/jobs", "List your jobs, newest first"), h.jobs)
	huma.Register(a, op("show-job", http.MethodGet, "/v1/jobs/{id}", "Show a job"), h.job)
	cancel := op("cancel-job", http.MethodPost, "/v1/jobs/{id}/cancel", "Cancel a job whose outcome is not decided")
	cancel.Errors = append(cancel.Errors, http.StatusConflict)
	huma.Register(a, cancel, h.cancel)
	del := op("delete-job", http.MethodDelete, "/v1/jobs/{id}", "Delete a finished job with its log and artifacts")
	del.Errors = append(del.Errors, http.StatusConflict)
	huma.Register(a, del, h.remove)
	huma.Register(a, h.eventsOperation(a), h.events)
	huma.Register(a, op("list-artifacts", http.MethodGet, "/v1/jobs/{id}/artifacts", "List a job's artifacts"), h.manifest)
	art := op("get-artifact", http.MethodGet, "/v1/jobs/{id}/artifacts/{path}", "Fetch an artifact; path may hold slashes")
	art.Responses = map[string]*huma.Response{"200": {
		Description: "The artifact's bytes, always as a download", Content: map[string]*huma.MediaType{
			"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		},
	}}
	huma.Register(a, art, h.artifact)
	registerSandboxes(a, h)
	registerSnapshots(a, h)
	return a
}
