package broker

import (
	"errors"
	"fmt"
	"time"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/inputs"
)

// refuse turns an error of the parts into one of the interface.
func refuse(err error) *api.Error {
	var e *api.Error
	var large *admission.TooLargeError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &large):
		return api.Errorf(api.CodeLimitImpossible, "the job is too large for this host").WithCause(err).WithRemedy("ask for less; /v1/info has the limits")
	case errors.Is(err, admission.ErrQueueFull):
		return api.Errorf(api.CodeQueueFull, "too many jobs wait already").WithRemedy("try again when some have ended")
	case errors.Is(err, inputs.ErrTooLarge):
		return api.Errorf(api.CodeInputTooLarge, "the input is larger than an input may be").WithRemedy("/v1/info has the limit (input_bytes)")
	case errors.Is(err, inputs.ErrQuota):
		return api.Errorf(api.CodeQuotaExceeded, "you hold as many inputs, or bytes of them, as you may").WithRemedy("delete inputs, or wait for them to expire")
	case errors.Is(err, inputs.ErrNotFound):
		return api.Errorf(api.CodeNotFound, "there is no such input")
	}
	return api.Errorf(api.CodeInternal, "the daemon failed").WithCause(err)
}

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
