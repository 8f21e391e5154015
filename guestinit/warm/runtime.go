package warm

import (
	"fmt"
	"path/filepath"
)

// Runtime is a language whose interpreter can wait.
type Runtime string

// The runtimes.
const (
	Python Runtime = "python"
	Node   Runtime = "node"
)

// pythonModules are imported by a warm Python: those that are slow to import
// first, then what scripts use every day. Those that an image lacks are left
// out.
var pythonModules = []string{
	"numpy", "pandas", "matplotlib.pyplot", "PIL.Image", "openpyxl", "requests",
	"argparse", "asyncio", "base64", "collections", "concurrent.futures", "contextlib", "copy", "csv", "dataclasses",
	"datetime", "decimal", "enum", "fractions", "functools", "glob", "gzip", "hashlib", "heapq", "html", "http.client",
	"importlib.metadata", "inspect", "io", "itertools", "json", "logging", "math", "operator", "os.path", "pathlib", "pickle",
	"pprint", "queue", "random", "re", "secrets", "shlex", "shutil", "signal", "socket", "sqlite3", "ssl", "statistics",
	"string", "struct", "subprocess", "tempfile", "textwrap", "threading", "time", "traceback", "typing", "unicodedata",
	"urllib.parse", "urllib.request", "uuid", "warnings", "xml.etree.ElementTree", "zipfile", "zlib", "zoneinfo",
}

// Argv returns the command line that starts the runtime's runner of dir. The
// libraries that it loads are the runtime's own choice unless preload names
// some.
func (r Runtime) Argv(dir string, preload []string) ([]string, error) {
	switch r {
	case Python:
		if preload == nil {
			preload = pythonModules
		}
		return append([]string{"python3", filepath.Join(dir, "python/runner.py")}, preload...), nil
	case Node:
		// By the name that jobs use: process.argv0 cannot be changed. What comes
		// first is Node's own options, what comes last its main module's arguments.
		argv := []string{"/usr/bin/node", "-r", filepath.Join(dir, "node/runner.js"), filepath.Join(dir, "node/context.js")}
		return append(argv, preload...), nil
	}
	return nil, fmt.Errorf("warm: no runtime %q", string(r))
}
