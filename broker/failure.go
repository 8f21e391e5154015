package broker

import (
	"errors"
	"fmt"
	"os"
	"time"

	"thaw/api"
)

// endWait is how long a failed conversation with a guest waits for the news that
// its machine is gone, which explains it better.
const endWait = time.Second

// jobError gives the reason of a failure. A machine that is gone is the reason,
// whatever call noticed it first.
func jobError(m Machine, err error) *api.Error {
	if m != nil {
		timer := time.NewTimer(endWait)
		defer timer.Stop()
		select {
		case <-m.Ended():
			return exitError(m.Exit())
		case <-timer.C:
		}
	}
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return api.Errorf(api.CodeAgentFailed, "the guest's agent failed").WithCause(err)
}

// exitError explains a machine that ended under its job.
func exitError(x MachineExit) *api.Error {
	cause := x.Detail
	if x.Console != "" {
		cause = fmt.Sprintf("%s\nlast console lines:\n%s", x.Detail, x.Console)
	}
	e := &api.Error{Cause: cause}
	switch x.Reason {
	case ExitKilled:
		e.Code, e.Message = api.CodeVMMKilled, "thaw-vmm was killed while the job ran"
		e.Remedy = "look into the host's log for who killed it (out of memory?), then run the job again"
	case ExitPanic:
		e.Code, e.Message = api.CodeGuestPanic, "the guest kernel panicked"
	case ExitPoweroff:
		e.Code, e.Message = api.CodeGuestEnded, "the guest ended before its job did"
	default:
		e.Code, e.Message = api.CodeVMMFailed, "the machine failed"
	}
	return e
}

func removeAll(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("broker: remove file: %w", err)
	}
	return nil
}
