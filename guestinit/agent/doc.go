// Package agent serves the host's requests inside the guest: programs, files,
// counters, shutdown. It is transport-agnostic (a net.Listener), so that it is
// tested over Unix sockets; in a guest the listener is vsock port 1024.
//
// One connection carries one exchange at a time and is reused for the next.
// Its reading goroutine never blocks on a job: control frames get through
// however stuck a program is. Memory is bounded for each exec: one 64 KiB
// buffer a stream, StdinWindow, and the tails of the output caps.
//
//	         exec                 program runs          main process ended
//	idle ──────────▶ starting ───────────────▶ running ───────────────────▶ draining
//	 ▲                  │ error                   │ stdin, signal, cancel      │
//	 │                  ▼                         ▼ (timeout, cpu time)        │
//	 └──────────────────┴── exit status ◀─────────────── output sent ──────────┘
//
// A connection that ends, or breaks the protocol, takes its exec with it,
// unless the exec is persistent (link.go, attach.go). A panic closes the
// connection that caused it, never the agent: this is PID 1.
//
// For checkpoints it freezes all execs (freeze.go), and after a restore makes
// the machine that of a new generation before it lets them go on
// (generation.go).
package agent
