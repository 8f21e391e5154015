package broker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/collect"
	"thaw/broker/eventlog"
)

// job is one job of one tenant.
type job struct {
	id      string
	tenant  string
	plan    plan
	created time.Time
	log     *eventlog.Log
	ticket  *admission.Ticket
	dir     string // holds the artifacts, if there are any; removed with the job

	ctx    context.Context // ends when an outcome other than done is decided
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed after the final state is entered

	mu        sync.Mutex
	state     api.State // protected by mu, as is the rest
	history   []api.StateTime
	outcome   api.State // "" until decided
	reason    *api.Error
	result    api.Result
	artifacts []collect.Artifact // no longer changed after ended
}

// enter moves to a state and tells it. It reports false, and does nothing, when
// the way from the present state does not lead there.
func (j *job) enter(s api.State) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.enterLocked(s)
}

// enterLocked is enter. Preconditions: mu is held.
func (j *job) enterLocked(s api.State) bool {
	if j.state != "" && !mayEnter(j.state, s) {
		return false
	}
	now := time.Now().UTC()
	j.state = s
	j.history = append(j.history, api.StateTime{State: s, At: now})
	e := api.StateEvent{State: s, At: now}
	if s.Final() && j.reason != nil {
		e.Reason = j.reason.Message
	}
	j.log.Append(api.EventState, encode(e))
	return true
}

// decide sets the outcome if none is set yet, and reports whether it did. Any
// outcome but done ends the job's context.
func (j *job) decide(outcome api.State, reason *api.Error) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.outcome != "" {
		return false
	}
	j.outcome, j.reason = outcome, reason
	if outcome != api.StateDone {
		j.cancel(reason)
	}
	return true
}

// decided reports whether an outcome is set.
func (j *job) decided() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.outcome != ""
}

// record changes the result under the job's lock.
func (j *job) record(change func(r *api.Result)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.result)
}

// finish enters the final state, tells the result and closes the log.
func (j *job) finish() {
	j.mu.Lock()
	j.result.Error = j.reason
	j.enterLocked(j.outcome)
	j.log.Append(api.EventResult, encode(j.viewLocked()))
	j.mu.Unlock()
	j.log.Close()
	close(j.ended)
}

// view is the job as its tenant sees it.
func (j *job) view() api.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.viewLocked()
}

// viewLocked is view. Preconditions: mu is held.
func (j *job) viewLocked() api.Job {
	v := api.Job{
		ID: j.id, State: j.state, Runtime: j.plan.runtime.name, Network: j.plan.network, Script: j.plan.request.Script,
		Args: j.plan.request.Args, Requester: j.plan.request.Requester, Model: j.plan.request.Model,
		Limits: j.plan.limits, Created: j.created, History: append([]api.StateTime(nil), j.history...),
	}
	if j.state.Final() {
		r := j.result
		v.Result = &r
	}
	return v
}

// encode marshals a value of the api package, none of which can fail to encode.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		b, _ = json.Marshal(api.Errorf(api.CodeInternal, "encode event").WithCause(err))
	}
	return b
}
