package agent

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// newControl returns the two ends of an exec's control socket: a stream, of
// which the job has descriptor 3 and the agent the other end, non-blocking and
// in the runtime's poller.
func newControl() (job int, agent *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, fmt.Errorf("agent: make control socket: %w", err)
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return -1, nil, fmt.Errorf("agent: prepare control socket: %w", err)
	}
	return fds[0], os.NewFile(uintptr(fds[1]), "control"), nil
}

// terms are the parts of a request that may be changed while its exec runs:
// a warm interpreter was started without a job's limits, and gets them with
// the job.
type terms struct {
	Timeout, Grace       time.Duration // from now on; 0 is none and the default
	CPUSeconds           int64         // of the whole exec, in total; 0 is none
	StdoutCap, StderrCap int64         // for bytes from now on; 0 is none

	job *jobTerms // nil: it goes on as what it was
}

// jobTerms are set when a warm interpreter becomes a job: what it did before
// is not the job's.
type jobTerms struct {
	started       time.Time
	spent         time.Duration // processor time
	fileSizeBytes int64         // Limits.FileSizeBytes
}

// adopt puts an exec under new terms and counts its output from zero. What it
// wrote before is sent first, so a connection must be attached if there is any.
//
// Preconditions: the terms are in the bounds of ExecRequest.
func (e *execution) adopt(t terms) {
	e.stdout.between(func() { e.stdout.restart(t.StdoutCap) })
	e.stderr.between(func() { e.stderr.restart(t.StderrCap) })
	select {
	case e.terms <- t:
	case <-e.proc.Done():
	}
}

// settle returns when everything that the job has written so far was sent. It
// may block as long as the host does not read.
func (e *execution) settle() {
	e.stdout.between(func() {})
	e.stderr.between(func() {})
}
