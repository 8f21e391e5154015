package agent

import (
	"fmt"
	"syscall"
	"time"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
	"thaw/guestinit/launch"
	"thaw/guestinit/warm"
)

// runWarm has an interpreter become a job; from then on it is like any exec.
func (c *conn) runWarm(payload []byte) error {
	var req agentproto.RunRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	it, err := c.s.interpreter(req.ExecID)
	if err == nil {
		err = it.run(req)
	}
	if err != nil {
		return c.sendError(err)
	}
	_, err = it.e.attach(c)
	return err
}

// run hands the job over. The interpreter's own limits come first, and it has
// the generators of this generation before it reads of the job.
func (it *interpreter) run(req agentproto.RunRequest) error {
	if err := it.s.freezer.gate.enter(); err != nil {
		return err
	}
	defer it.s.freezer.gate.leave()
	if err := it.take(warmJob); err != nil {
		return err
	}
	answer, err := it.handOver(req)
	if err != nil {
		it.e.abandon()
		return err
	}
	if answer.Errno != 0 {
		// It could not enter the directory, and waits on.
		it.setState(warmFresh)
		return agentproto.FromErr(fmt.Errorf("working directory %q: %w", req.Cwd, syscall.Errno(answer.Errno)))
	}
	it.mu.Lock()
	it.cold = answer.Cold
	it.mu.Unlock()
	switch {
	case it.keeper == nil:
	case answer.Cold != "":
		it.keeper.release()
	default:
		go it.releaseKeeper()
	}
	return nil
}

func (it *interpreter) handOver(req agentproto.RunRequest) (warm.Answer, error) {
	e := it.e
	if req.Cwd == "" {
		req.Cwd = it.s.cfg.Workspace
	}
	if req.Outputs != "" {
		if err := it.s.files.MakeDir(req.Outputs); err != nil {
			return warm.Answer{}, err
		}
	}
	spent, err := it.limit(&req.Limits)
	if err != nil {
		return warm.Answer{}, err
	}
	e.adopt(terms{
		Timeout: req.Timeout, Grace: req.Grace, CPUSeconds: req.Limits.CPUSeconds,
		StdoutCap: req.StdoutCap, StderrCap: req.StderrCap,
		job: &jobTerms{started: time.Now(), spent: spent, fileSizeBytes: req.Limits.FileSizeBytes, outputs: req.Outputs},
	})
	told, err := it.settled()
	if err != nil {
		return warm.Answer{}, err
	}
	job := warm.Job{Argv: req.Argv, Env: launch.Environment(req.Env), Cwd: req.Cwd, Stdin: req.Stdin, Cold: needsCold(req.Limits), Generation: told}
	if err := it.conn.SendJob(job); err != nil {
		return warm.Answer{}, err
	}
	answer, err := it.conn.Receive(time.Now().Add(answerPatience), func(a warm.Answer) bool { return a.Kind == warm.KindRun })
	if err == nil {
		err = it.obeyed(told, answer)
	}
	return answer, err
}

// needsCold names a limit that a process must have from its start: the
// address space of a warm one is taken already, and where its stack may grow
// to is decided.
func needsCold(l agentproto.Limits) string {
	switch {
	case l.AddressSpaceBytes != 0:
		return "limit on address space"
	case l.StackBytes != 0:
		return "limit on stack"
	}
	return ""
}

// limit sets the job's limits. Processor time counts from now: what it took
// to warm up is added to the limit, and returned.
func (it *interpreter) limit(l *agentproto.Limits) (spent cgroup.CPUTime, err error) {
	e := it.e
	err = e.group.SetLimits(cgroup.Limits{MemoryBytes: l.MemoryBytes, Pids: l.Pids, CPUMilli: l.CPUMilli})
	if err != nil {
		return spent, err
	}
	if spent, err = e.group.CPU(); err != nil {
		return spent, err
	}
	if l.CPUSeconds != 0 {
		l.CPUSeconds += int64((spent.Total + time.Second - 1) / time.Second)
	}
	// It has the defaults already, unless a job that it refused had others.
	wanted := l.CPUSeconds != 0 || l.FileSizeBytes != 0 || l.OpenFiles != 0 || l.Processes != 0
	if !wanted && !it.limited {
		return spent, nil
	}
	it.limited = true
	if l.Processes != 0 && it.keeper != nil {
		l.Processes++ // the keeper is of the same user
	}
	return spent, it.s.cfg.Launcher.Limit(e.proc, launch.Rlimits(*l))
}
