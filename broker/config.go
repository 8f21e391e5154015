package broker

import (
	"log/slog"
	"time"

	"thaw/broker/admission"
	"thaw/internal/hostinfo"
	"thaw/snapshot/policy"
)

// Config is what a daemon is told at start. Zero values get defaults.
type Config struct {
	StateDir string // inputs and artifacts of this daemon; emptied at start
	Version  string
	Dev      bool
	Host     hostinfo.Info
	Launcher Launcher
	Fleet    Fleet // nil: every machine is booted, and there are no sandboxes
	Log      *slog.Logger
	Records  *policy.Writer // of checkpoints; nil: none are written

	Capacity admission.Need // for machines, reserves taken off; zero: from the host
	MaxQueue int            // jobs that wait for admission

	InputBytes       int64         // of one input
	TenantInputBytes int64         // of all inputs of a tenant
	TenantInputs     int           // inputs of a tenant
	TenantJobs       int           // unfinished jobs of a tenant
	TenantMachines   int           // machines of a tenant at a time; 0: all that the host has
	TenantQueue      int           // those of them that wait for admission
	KeepTenantJobs   int           // finished jobs kept for a tenant; older ones are deleted
	KeepTenantBytes  int64         // of their artifacts: admission counts those of unfinished jobs only
	InputTTL         time.Duration // of an unused input

	TenantSandboxes     int           // sandboxes of a tenant that have not ended
	TenantSnapshots     int           // snapshots of a tenant
	TenantSnapshotBytes int64         // of them on disk: no more are made above it
	SandboxWait         time.Duration // how long a new sandbox waits for room on the host
	TemplateWait        time.Duration // how long a job waits for its template before it is booted
	OperationTimeout    time.Duration // for a checkpoint, rollback, pause or resume

	LogBytes       int           // output kept in a job's event log
	AttachWait     time.Duration // how long a full log waits for a reader
	StallWait      time.Duration // how long a full log waits for a reader that takes nothing
	PutTimeout     time.Duration // for all inputs together
	StartTimeout   time.Duration // for the guest to start the program
	StopGrace      time.Duration // between SIGTERM and SIGKILL
	KillGrace      time.Duration // between SIGKILL and the end of the machine
	CollectTimeout time.Duration // for fetching all outputs
	CloseTimeout   time.Duration // for destroying a machine
}

func (c *Config) setDefaults() {
	setDefault(&c.MaxQueue, 128)
	setDefault(&c.InputBytes, 2<<30)
	setDefault(&c.TenantInputBytes, 8<<30)
	setDefault(&c.TenantInputs, 4096)
	setDefault(&c.TenantJobs, 128)
	// So that one tenant cannot fill the queue for the others.
	setDefault(&c.TenantQueue, max(1, c.MaxQueue/2))
	setDefault(&c.KeepTenantJobs, 64)
	setDefault(&c.KeepTenantBytes, 16<<30)
	setDefault(&c.InputTTL, time.Hour)
	setDefault(&c.TenantSandboxes, 256)
	setDefault(&c.TenantSnapshots, 4096)
	setDefault(&c.TenantSnapshotBytes, 16<<30)
	setDefault(&c.SandboxWait, 10*time.Second)
	setDefault(&c.TemplateWait, 100*time.Millisecond)
	setDefault(&c.OperationTimeout, time.Minute)
	setDefault(&c.LogBytes, 512<<10)
	setDefault(&c.AttachWait, 2*time.Second)
	setDefault(&c.StallWait, 30*time.Second)
	setDefault(&c.PutTimeout, 5*time.Minute)
	setDefault(&c.StartTimeout, 30*time.Second)
	setDefault(&c.StopGrace, 3*time.Second)
	setDefault(&c.KillGrace, 2*time.Second)
	setDefault(&c.CollectTimeout, 2*time.Minute)
	setDefault(&c.CloseTimeout, 30*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
