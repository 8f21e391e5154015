package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"thaw/api"
)

// useOurErrors makes the framework speak of failures as the interface does. Its
// hook is global to the process, which serves one interface.
var useOurErrors = sync.OnceFunc(func() { huma.NewError = newError })

func newError(status int, msg string, errs ...error) huma.StatusError {
	e := api.Errorf(codeFor(status), "%s", msg).WithStatus(status)
	var causes []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		var own *api.Error
		if errors.As(err, &own) {
			return own
		}
		causes = append(causes, detail(err))
	}
	e.Cause = strings.Join(causes, "; ")
	switch status {
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		e.Remedy = "the OpenAPI document (/openapi.json) describes the request"
	case http.StatusUnsupportedMediaType:
		e.Remedy = "say what the body is: Content-Type: application/json"
	}
	return e
}

// detail names where in a request the fault is. The offending value is left out:
// it may be large, or secret.
func detail(err error) string {
	var d huma.ErrorDetailer
	if !errors.As(err, &d) {
		return err.Error()
	}
	if info := d.ErrorDetail(); info.Location != "" {
		return fmt.Sprintf("%s: %s", info.Location, info.Message)
	}
	return d.ErrorDetail().Message
}

func codeFor(status int) api.Code {
	switch {
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return api.CodeNotFound
	case status == http.StatusUnprocessableEntity:
		return api.CodeRequestInvalid
	case status == http.StatusRequestEntityTooLarge:
		return api.CodeRequestInvalid
	case status >= 500:
		return api.CodeInternal
	}
	return api.CodeBadRequest
}
