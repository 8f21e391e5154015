package launch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pipes are the ends of a job's standard streams and control socket, which a job
// may be without: then they are nil and -1. The agent's ends are non-blocking and
// in the runtime's poller, the job's are plain.
type Pipes struct {
	Stdin, Stdout, Stderr, Control             *os.File
	JobStdin, JobStdout, JobStderr, JobControl int
}

// NewPipes makes the pipes. They are given to the job's user, so that it can
// open /dev/stdout again.
func NewPipes(withStdin, withControl bool, uid, gid int) (*Pipes, error) {
	p := &Pipes{JobStdin: -1, JobStdout: -1, JobStderr: -1, JobControl: -1}
	var err error
	defer func() {
		if err != nil {
			p.CloseAgentSide()
			p.CloseJobSide()
		}
	}()
	if withStdin {
		if p.JobStdin, p.Stdin, err = newPipe(false, uid, gid); err != nil {
			return nil, err
		}
	}
	if withControl {
		if p.JobControl, p.Control, err = newControl(); err != nil {
			return nil, err
		}
	}
	if p.JobStdout, p.Stdout, err = newPipe(true, uid, gid); err != nil {
		return nil, err
	}
	if p.JobStderr, p.Stderr, err = newPipe(true, uid, gid); err != nil {
		return nil, err
	}
	return p, nil
}

// newPipe returns the job's end and the agent's; the job writes if output.
func newPipe(output bool, uid, gid int) (job int, agent *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return -1, nil, fmt.Errorf("launch: make pipe: %w", err)
	}
	job, mine := fds[0], fds[1]
	if output {
		job, mine = fds[1], fds[0]
	}
	err = unix.Fchown(job, uid, gid)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(mine), unix.F_SETFL, unix.O_NONBLOCK)
	}
	if err != nil {
		unix.Close(job)
		unix.Close(mine)
		return -1, nil, fmt.Errorf("launch: prepare pipe: %w", err)
	}
	return job, os.NewFile(uintptr(mine), "pipe"), nil
}

// CloseJobSide closes what the job has its own copies of.
func (p *Pipes) CloseJobSide() {
	for _, fd := range []int{p.JobStdin, p.JobStdout, p.JobStderr, p.JobControl} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// CloseAgentSide closes the rest, where nothing came of the start.
func (p *Pipes) CloseAgentSide() {
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr, p.Control} {
		if f != nil {
			f.Close()
		}
	}
}

// newControl returns the two ends of an exec's control socket: a stream, of
// which the job has descriptor 3 and the agent the other end, non-blocking and
// in the runtime's poller.
func newControl() (job int, agent *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, nil, fmt.Errorf("launch: make control socket: %w", err)
	}
	if err := unix.SetNonblock(fds[1], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return -1, nil, fmt.Errorf("launch: prepare control socket: %w", err)
	}
	return fds[0], os.NewFile(uintptr(fds[1]), "control"), nil
}
