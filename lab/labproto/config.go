package labproto

// ConfigParam is the kernel parameter that names the lab's configuration, a
// JSON Config at a path of the host.
const ConfigParam = "thaw.lab.config"

// Config is what the host tells the lab's init. Every path is the host's, and
// the lab's too: it sees the host's tree at the same place.
type Config struct {
	// ToolRoot is the Debian tree whose kmod loads modules.
	ToolRoot string `json:"tool_root"`
	// Loader is the command line that runs a program of ToolRoot: its dynamic
	// loader and the library path. The program follows.
	Loader []string `json:"loader"`
	// KernelDir holds lib/modules of the lab's kernel.
	KernelDir string `json:"kernel_dir"`
	// Modules are loaded in this order once the root is in place.
	Modules []string `json:"modules"`
	// Shares are folders of the host that the lab may write.
	Shares []Share `json:"shares"`
}

// Share is a virtiofs share and where it is mounted.
type Share struct {
	Tag  string `json:"tag"`
	Path string `json:"path"`
}
