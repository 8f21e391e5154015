package agent

import (
	"time"

	"thaw/guestinit/cgroup"
)

// terms are the parts of a request that may be changed while its exec runs:
// a warm interpreter was started without a job's limits, and gets them with
// the job.
type terms struct {
	Timeout, Grace       time.Duration // from now on; 0 is none and the default
	CPUSeconds           int64         // of the whole exec, in total; 0 is none
	StdoutCap, StderrCap int64         // for bytes from now on; 0 is none

	job   *jobTerms // nil: it goes on as what it was
	waits bool      // an interpreter that waits: hardly watched
}

// jobTerms are set when a warm interpreter becomes a job: what it did before
// is not the job's.
type jobTerms struct {
	started       time.Time
	spent         cgroup.CPUTime
	fileSizeBytes int64  // Limits.FileSizeBytes
	outputs       string // RunRequest.Outputs
}

// adopt puts an exec under new terms and counts its output from zero. What it
// wrote before is sent first, so a connection must be attached if there is any.
//
// Preconditions: the terms are in the bounds of ExecRequest.
func (e *execution) adopt(t terms) {
	e.stdout.between(func(*buffer) { e.stdout.restart(t.StdoutCap) })
	e.stderr.between(func(*buffer) { e.stderr.restart(t.StderrCap) })
	select {
	case e.terms <- t:
	case <-e.proc.Done():
	}
}

// settle returns when everything that the job has written so far was sent. It
// may block as long as the host does not read.
func (e *execution) settle() {
	e.stdout.between(func(*buffer) {})
	e.stderr.between(func(*buffer) {})
}
