package vmmproto

// Kind names a message type on the wire.
type Kind string

// Kinds that the daemon sends.
const (
	KindStart          Kind = "start"
	KindPing           Kind = "ping"
	KindPause          Kind = "pause"
	KindResume         Kind = "resume"
	KindStop           Kind = "stop"
	KindStatsRequest   Kind = "stats_request"
	KindConsoleRequest Kind = "console_request"
	KindSetBalloon     Kind = "set_balloon"
	KindMemoryStats    Kind = "memory_stats"
	KindConnected      Kind = "connected"
	KindRefused        Kind = "refused"
	KindHandle         Kind = "handle"
)

// Kinds that thaw-vmm sends.
const (
	KindStarted Kind = "started"
	KindFailed  Kind = "failed"
	KindPong    Kind = "pong"
	KindDone    Kind = "done"
	KindStats   Kind = "stats"
	KindConsole Kind = "console"
	KindConnect Kind = "connect"
	KindExited  Kind = "exited"
)

// Message is a message of either direction.
type Message interface {
	Kind() Kind
	// Validate checks every field against this package's bounds.
	Validate() error
	// Descriptors is how many file descriptors travel with the message, neither more nor fewer.
	Descriptors() int
	// fields codes every field, in an order that is part of the protocol.
	fields(c *coder)
}

// Reply is a message that answers the request with the same id.
type Reply interface {
	Message
	RequestID() uint64
}

// Start describes the machine. Its descriptors come in the order of Files, which [Start.FileNames] gives.
type Start struct {
	// Shell makes a machine with nothing in it, which Restore fills.
	Shell       bool
	VCPUs       int
	MemoryBytes uint64
	Cmdline     string
	Initrd      bool
	Disks       []Disk
	Vsock       *Vsock
	Net         *Net
	Balloon     bool
	DirtyRing   bool // in place of a dirty log
	ConsoleLog  int  // bytes of console kept
	// CPUID is what KVM offers guests on this host, by package kvm's EncodeCPUID; empty: the machine asks itself.
	CPUID []byte
	Files []string
}

// Disk is one block device; Layers counts its files, bottom first.
type Disk struct {
	ID       string
	Layers   int
	ReadOnly bool
}

// Vsock is the socket device, with the guest's context id.
type Vsock struct {
	CID uint64
}

// Net is the network device.
type Net struct {
	MAC [6]byte
}

// Request bodies have an id that the answer repeats, and most of them nothing else.
type (
	// Ping asks for a Pong: the process is alive and its loop runs.
	Ping struct {
		ID uint64
	}
	// Pause stops the vCPUs; answered by Done when they stand.
	Pause struct {
		ID uint64
	}
	// Resume lets the vCPUs run again; answered by Done.
	Resume struct {
		ID uint64
	}
	// Stop ends the machine; answered by Done, followed by Exited.
	Stop struct {
		ID uint64
	}
	// StatsRequest is answered by Stats.
	StatsRequest struct {
		ID uint64
	}
	// ConsoleRequest is answered by Console.
	ConsoleRequest struct {
		ID uint64
	}
	// SetBalloon asks the guest to give back that many MiB of its memory, and zero lets it have all; answered by Done
	// before the guest has followed.
	SetBalloon struct {
		ID  uint64
		MiB uint64
	}
	// MemoryStats asks the guest how it uses its memory; answered by Stats, or by Done with the reason why not.
	MemoryStats struct {
		ID uint64
	}
	// Connected answers Connect and carries one connected stream socket.
	Connected struct {
		ID uint64
	}
	// Refused answers Connect: nothing listens there.
	Refused struct {
		ID uint64
	}
)

// Started says that the machine is made, jailed and about to run.
type Started struct {
	Phases []Phase
}

// Phase is a named stretch of start-up time.
type Phase struct {
	Name   string
	Micros int64
}

// Failed says why there will be no Started: the stage that failed, and the error's text.
type Failed struct {
	Stage  string
	Detail string
}

// Pong answers Ping. Console is the tail of the guest's console when it has changed since the last Pong, so
// that the daemon has a recent copy of it when the process dies.
type Pong struct {
	ID      uint64
	Console []byte
}

// Done answers Pause, Resume, Stop and SetBalloon, and what could not be answered otherwise; Error is empty on
// success.
type Done struct {
	ID    uint64
	Error string
}

// Stats answers StatsRequest and MemoryStats with counters and gauges by name.
type Stats struct {
	ID     uint64
	Values map[string]uint64
}

// Console answers ConsoleRequest with the last bytes of the guest's console.
type Console struct {
	ID   uint64
	Tail []byte
}

// Connect asks for a stream to the vsock port that the guest dialled.
type Connect struct {
	ID   uint64
	Port uint32
}

// Reason says how a machine ended.
type Reason string

// Reasons as thaw-vmm reports them.
const (
	Poweroff    Reason = "poweroff"
	Reset       Reason = "reset"
	Panic       Reason = "panic"        // the guest kernel
	TripleFault Reason = "triple_fault" // the guest kernel
	Stopped     Reason = "stopped"      // by Stop
	Internal    Reason = "internal"     // an error of the VMM itself
)

// Exited is the last message: the machine has ended.
type Exited struct {
	Reason  Reason
	Detail  string
	Console []byte
}

// Kind implementations.

func (*Start) Kind() Kind          { return KindStart }
func (*Ping) Kind() Kind           { return KindPing }
func (*Pause) Kind() Kind          { return KindPause }
func (*Resume) Kind() Kind         { return KindResume }
func (*Stop) Kind() Kind           { return KindStop }
func (*StatsRequest) Kind() Kind   { return KindStatsRequest }
func (*ConsoleRequest) Kind() Kind { return KindConsoleRequest }
func (*SetBalloon) Kind() Kind     { return KindSetBalloon }
func (*MemoryStats) Kind() Kind    { return KindMemoryStats }
func (*Connected) Kind() Kind      { return KindConnected }
func (*Refused) Kind() Kind        { return KindRefused }
func (*Started) Kind() Kind        { return KindStarted }
func (*Failed) Kind() Kind         { return KindFailed }
func (*Pong) Kind() Kind           { return KindPong }
func (*Done) Kind() Kind           { return KindDone }
func (*Stats) Kind() Kind          { return KindStats }
func (*Console) Kind() Kind        { return KindConsole }
func (*Connect) Kind() Kind        { return KindConnect }
func (*Exited) Kind() Kind         { return KindExited }

// RequestID implementations.

func (m *Pong) RequestID() uint64      { return m.ID }
func (m *Done) RequestID() uint64      { return m.ID }
func (m *Stats) RequestID() uint64     { return m.ID }
func (m *Console) RequestID() uint64   { return m.ID }
func (m *Connected) RequestID() uint64 { return m.ID }
func (m *Refused) RequestID() uint64   { return m.ID }

// Descriptors implementations: only two kinds carry any.

func (m *Start) Descriptors() int        { return len(m.Files) }
func (*Connected) Descriptors() int      { return 1 }
func (*Ping) Descriptors() int           { return 0 }
func (*Pause) Descriptors() int          { return 0 }
func (*Resume) Descriptors() int         { return 0 }
func (*Stop) Descriptors() int           { return 0 }
func (*StatsRequest) Descriptors() int   { return 0 }
func (*ConsoleRequest) Descriptors() int { return 0 }
func (*SetBalloon) Descriptors() int     { return 0 }
func (*MemoryStats) Descriptors() int    { return 0 }
func (*Refused) Descriptors() int        { return 0 }
func (*Started) Descriptors() int        { return 0 }
func (*Failed) Descriptors() int         { return 0 }
func (*Pong) Descriptors() int           { return 0 }
func (*Done) Descriptors() int           { return 0 }
func (*Stats) Descriptors() int          { return 0 }
func (*Console) Descriptors() int        { return 0 }
func (*Connect) Descriptors() int        { return 0 }
func (*Exited) Descriptors() int         { return 0 }
