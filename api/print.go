package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// AsError gives any error the interface's shape: code internal, unless it wraps an Error.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Errorf(CodeInternal, "%s", err)
}

// PrintError writes how a program failed: for people, beginning with the program's name, or as one line of JSON.
func PrintError(w io.Writer, program string, err error, asJSON bool) {
	e := AsError(err)
	// Where it cannot be written there is nowhere else to say it.
	if asJSON {
		_ = json.NewEncoder(w).Encode(e)
		return
	}
	_, _ = fmt.Fprintln(w, program+": "+e.Text())
}
