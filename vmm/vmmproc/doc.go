// Package vmmproc starts and supervises one thaw-vmm process per machine, on the daemon's side.
//
//	      Start                        started                     ended, by itself or not
//	────────▶ starting ──────────────────▶ running ───────────────────────▶ over
//	             │ failed, died, silent       │ exited message            ▲   Wait returns
//	             │ for StartTimeout           │ died (signal, panic)      │
//	             ▼                            │ hung (no pong)            │
//	       *StartError                        │ broke the protocol        │
//	                                          │ Kill, Close               │
//	                                          └───────────────────────────┘
//
// Whatever happens, there is one [Exit] with a [Reason]: what was found out first wins, so that a process that was
// killed because it hung is reported as hung. Each process has four goroutines: the one that waits for its end, the
// reader of the control socket, the reader of its stderr, and the one that pings. [Process.Close] ends them all.
// Processes are started by a spawner (package spawner), which lives as long as any of them.
//
// Everything that comes from the process is hostile: it is one that runs a hostile guest. Messages are decoded by
// vmmproto's strict decoder; an unknown answer, a descriptor, too many requests or a flood of crash text never
// costs more than the process itself.
package vmmproc
