package api

// Info describes the daemon and its host.
type Info struct {
	Version     string    `json:"version"`
	Host        Host      `json:"host"`
	Dev         bool      `json:"dev" doc:"Development mode: the daemon runs although something required is missing"`
	Enforced    []string  `json:"enforced"`
	NotEnforced []string  `json:"not_enforced" doc:"What this host does not enforce; empty outside development mode"`
	Kernel      Asset     `json:"kernel"`
	Runtimes    []Runtime `json:"runtimes"`
	Networks    []string  `json:"networks"`
	Limits      LimitInfo `json:"limits"`
	Jobs        JobCounts `json:"jobs"`
	Sandboxes   int       `json:"sandboxes" doc:"Sandboxes of all tenants that have not ended"`
	// Templates is absent where the daemon boots every machine.
	Templates *TemplateInfo `json:"templates,omitempty" doc:"What machines are restored from; absent where each is booted"`
}

// TemplateInfo says what templates there can be.
type TemplateInfo struct {
	Classes   []MachineClass `json:"classes" doc:"Sizes of machines"`
	DiskBytes int64          `json:"disk_bytes" doc:"Size of the writable disk: jobs with another workspace_bytes are booted"`
	Shells    []ShellCount   `json:"shells" doc:"Shells that wait to become machines"`
	Trackers  []Tracker      `json:"trackers" doc:"What can find a checkpoint's pages, the cheapest for the guest first"`
}

// Tracker is a way to find the pages that a machine has changed.
type Tracker struct {
	Name  string `json:"name"`
	About string `json:"about"`
	OK    bool   `json:"ok" doc:"This host has it"`
	Error string `json:"error,omitempty" doc:"What it lacks"`
}

// ShellCount counts the shells of a kind that wait.
type ShellCount struct {
	MachineClass
	Shell    Shell  `json:"shell" enum:"generic,bound,rehearsed"`
	Snapshot string `json:"snapshot,omitempty" doc:"Template of bound and rehearsed shells"`
	Ready    int    `json:"ready"`
	Wanted   int    `json:"wanted" doc:"As many are kept ready while the host is idle"`
}

// MachineClass is a size of machines.
type MachineClass struct {
	MemoryMiB int64 `json:"memory_mib"`
	VCPUs     int   `json:"vcpus"`
}

// Host is the machine that the daemon runs on.
type Host struct {
	Kind        string  `json:"kind" enum:"hardware,pvm,lab,none"`
	CPUModel    string  `json:"cpu_model"`
	Kernel      string  `json:"kernel"`
	Fingerprint string  `json:"fingerprint" doc:"Changes when CPU model, host kind or kernel does"`
	Checks      []Check `json:"checks"`
}

// Check is one fact about the host and what to do when it does not hold.
type Check struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Detail   string `json:"detail"`
	Remedy   string `json:"remedy,omitempty"`
	Required bool   `json:"required"`
}

// Asset is a file that machines boot from.
type Asset struct {
	Name  string `json:"name"`
	Path  string `json:"path,omitempty"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// Runtime is an image that jobs can run in.
type Runtime struct {
	Name     string   `json:"name"`
	Suffixes []string `json:"suffixes" doc:"File name endings of scripts it runs"`
	Image    Asset    `json:"image"`
	Defaults Limits   `json:"defaults"`
}

// LimitInfo gives the largest value of each limit on this host.
type LimitInfo struct {
	Max        Limits `json:"max"`
	InputBytes int64  `json:"input_bytes" doc:"Largest input, in bytes"`
}

// JobCounts counts jobs of all tenants.
type JobCounts struct {
	Queued  int `json:"queued" doc:"Jobs, and sandboxes in the making, that wait for room"`
	Running int `json:"running"`
}
