package broker

import (
	"slices"

	"thaw/api"
)

// The life of a job. Each state is entered once and told as an event.
//
//	queued ─▶ admitted ─▶ materialising ─▶ running ─▶ collecting ─▶ validating
//	  │           │             │             │            │             │
//	  └───────────┴─────────────┴──────┬──────┴────────────┴─────────────┘
//	                                   ▼
//	                               cleaning ─▶ done | failed | cancelled | timed_out
//
// Which of the four it will be is the job's outcome, decided before cleaning by
// whoever comes first (job.decide): the program's end once its outputs are
// validated, a failure, the wall clock, or a cancellation. An outcome is never
// changed: a completion that comes after a cancellation changes nothing.
var transitions = map[api.State][]api.State{
	api.StateQueued:        {api.StateAdmitted, api.StateCleaning},
	api.StateAdmitted:      {api.StateMaterialising, api.StateCleaning},
	api.StateMaterialising: {api.StateRunning, api.StateCleaning},
	api.StateRunning:       {api.StateCollecting, api.StateCleaning},
	api.StateCollecting:    {api.StateValidating, api.StateCleaning},
	api.StateValidating:    {api.StateCleaning},
	api.StateCleaning:      {api.StateDone, api.StateFailed, api.StateCancelled, api.StateTimedOut},
}

// mayEnter reports whether a job may go from one state to another.
func mayEnter(from, to api.State) bool { return slices.Contains(transitions[from], to) }
