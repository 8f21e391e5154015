// Package broker admits, runs, collects and cleans up jobs, and keeps sandboxes and
// their snapshots: the core of thawd.
//
// One job is one goroutine (run.go) that walks the states drawn in lifecycle.go
// and owns one machine, which is destroyed at the end whatever happened:
//
//	httpapi ──▶ Broker.Submit: check request (request.go, limits.go, profiles.go), pin inputs, enter the queue
//	                 │
//	                 ▼ one goroutine a job
//	            wait for admission ──▶ Launcher.Launch ──▶ put inputs ──▶ exec ──▶ collect ──▶ validate
//	                                                          any failure, cancel or timeout ───┐
//	                                              Machine.Close, release, final state ◀─────────┘
//
// A job's machine is restored from a template (Fleet) where there is one, and booted
// (Launcher) where not: see templates.go. A sandbox is a restored machine without a
// goroutine of its own: its life is drawn in sandbox.go, what changes it is in
// sandbox_ops.go, what runs in it in sandbox_run.go.
//
// Who may see what: every exported method takes the caller's tenant and looks only
// among that tenant's things. Whatever belongs to another is "not found".
//
// What one running job costs the daemon in memory: its event log (at most
// Config.LogBytes, 512 KiB), one chunk of output on each stream being encoded
// (3 × 32 KiB), one copy buffer for files (32 KiB), the console tail (64 KiB), and
// the agent connection's frames (64 KiB each way). Guest memory is a memfd, which
// admission counts. A finished job keeps its log until it is deleted or retired.
package broker
