package agentproto

import (
	"errors"
	"fmt"
	"time"
)

// Ping is a FramePing's payload and comes back in the FrameOK.
type Ping struct {
	Nonce uint64 `cbor:"1,keyasint"`
}

// Info describes the guest.
type Info struct {
	Version  uint32 `cbor:"1,keyasint"` // the agent's protocol version
	Kernel   string `cbor:"2,keyasint"` // release
	Hostname string `cbor:"3,keyasint"`
	CPUs     int64  `cbor:"4,keyasint"`
	MemTotal int64  `cbor:"5,keyasint"` // bytes
	// Image is /etc/thaw/image.json as it is, or empty.
	Image []byte `cbor:"6,keyasint,omitempty"`
	// Controllers are the cgroup controllers that execs are limited by.
	Controllers []string `cbor:"7,keyasint,omitempty"`
	// Skipped names what this guest cannot enforce.
	Skipped []string `cbor:"8,keyasint,omitempty"`
	// Uptime is the time since the kernel started.
	Uptime time.Duration `cbor:"9,keyasint"`
	// Phases are the steps of PID 1's boot, in order.
	Phases []Phase `cbor:"10,keyasint,omitempty"`
	// AgentRSS is the agent's resident memory in bytes.
	AgentRSS int64 `cbor:"11,keyasint,omitempty"`
	// Generation is the number of the last one, or 0.
	Generation uint64 `cbor:"12,keyasint,omitempty"`
	// Frozen says that all execs are frozen and none can start.
	Frozen bool `cbor:"13,keyasint,omitempty"`
}

// Phase is one step of the boot; At is its end, since the kernel started.
type Phase struct {
	Name string        `cbor:"1,keyasint"`
	At   time.Duration `cbor:"2,keyasint"`
}

// Validate checks the bounds of what a guest may claim.
func (i *Info) Validate() error {
	switch {
	case len(i.Kernel) > 256 || len(i.Hostname) > 256:
		return errors.New("name is over 256 bytes")
	case len(i.Image) > 16<<10:
		return fmt.Errorf("image description has %d bytes", len(i.Image))
	case len(i.Controllers) > 32 || len(i.Phases) > 64:
		return errors.New("list is too long")
	case i.CPUs < 0 || i.MemTotal < 0 || i.Uptime < 0 || i.AgentRSS < 0:
		return errors.New("count is negative")
	}
	for _, c := range i.Controllers {
		if len(c) > 32 {
			return errors.New("name of a controller is over 32 bytes")
		}
	}
	for _, p := range i.Phases {
		if len(p.Name) > 64 || p.At < 0 {
			return errors.New("phase is out of bounds")
		}
	}
	return validSkipped(i.Skipped)
}
