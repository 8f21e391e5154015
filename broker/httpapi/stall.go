package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"thaw/api"
)

// stalls are how long a caller may let a connection stand still. An upload or a
// stream that moves may take as long as it likes.
type stalls struct {
	upload   time.Duration // without a byte of the body
	download time.Duration // without taking what is written
}

// A caller that does not take its events may have been suspended for a moment; it
// resumes after the last event when it comes back.
var defaultStalls = stalls{upload: 30 * time.Second, download: 2 * time.Minute}

// patientReader reads a request's body. It fails with upload_stalled when no byte
// comes for a while.
type patientReader struct {
	body io.Reader
	conn *http.ResponseController
	wait time.Duration
}

func (r *patientReader) Read(b []byte) (int, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(r.wait)); err != nil {
		return 0, err
	}
	n, err := r.body.Read(b)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		// The deadline stays: the server would wait for the rest of the body.
		return n, api.Errorf(api.CodeUploadStalled, "no byte of the upload came for %s", r.wait).WithRemedy("send it again")
	case errors.Is(err, io.EOF):
		// The server watches the connection from now on, without a deadline.
		if derr := r.conn.SetReadDeadline(time.Time{}); derr != nil {
			return n, derr
		}
	}
	return n, err
}

// patientWriter writes a response and fails when a write is not taken for a while.
type patientWriter struct {
	w    io.Writer
	conn *http.ResponseController
	wait time.Duration
}

func newPatientWriter(w http.ResponseWriter, wait time.Duration) *patientWriter {
	return &patientWriter{w, http.NewResponseController(w), wait}
}

func (p *patientWriter) Write(b []byte) (int, error) {
	if err := p.conn.SetWriteDeadline(time.Now().Add(p.wait)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

// flush sends what was written.
func (p *patientWriter) flush() error { return p.conn.Flush() }

// cut breaks the connection off: the answer's end is not sent.
func (p *patientWriter) cut() {
	_ = p.conn.SetWriteDeadline(time.Unix(1, 0)) // of a connection that has gone
}

// done lifts the deadline, which would hold for the connection's next response too.
func (p *patientWriter) done() {
	_ = p.conn.SetWriteDeadline(time.Time{}) // of a connection that has gone
}
