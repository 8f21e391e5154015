package rootfs

import (
	"fmt"
	"os"
)

// Options choose how images are made.
type Options struct {
	// Locked makes a Debian package that is not as locked an error (*DriftError)
	// instead of a warning.
	Locked bool
	// Python and Node say where their packages come from. Empty: from PyPI and npm
	// where these registries are reached, else from Debian.
	Python, Node Source
	// LockDir is a folder of lock files used instead of the embedded ones.
	LockDir string
}

// OptionsFromEnv returns the options that the environment sets:
// THAW_IMAGE_LOCKED=1, THAW_PYTHON_SOURCE=pypi|debian, THAW_NODE_SOURCE=npm|debian,
// THAW_IMAGE_LOCK_DIR=DIR.
func OptionsFromEnv() Options {
	return Options{
		Locked:  os.Getenv("THAW_IMAGE_LOCKED") == "1",
		Python:  Source(os.Getenv("THAW_PYTHON_SOURCE")),
		Node:    Source(os.Getenv("THAW_NODE_SOURCE")),
		LockDir: os.Getenv("THAW_IMAGE_LOCK_DIR"),
	}
}

func (o Options) validate() error {
	if o.Python != "" && o.Python != SourcePyPI && o.Python != SourceDebian {
		return fmt.Errorf("rootfs: Python's source is %q, want pypi or debian", o.Python)
	}
	if o.Node != "" && o.Node != SourceNPM && o.Node != SourceDebian {
		return fmt.Errorf("rootfs: Node's source is %q, want npm or debian", o.Node)
	}
	return nil
}

// sources returns the allowed sources of one language, best first.
func sources(wanted bool, chosen, registry Source) []Source {
	switch {
	case !wanted:
		return []Source{""}
	case chosen != "":
		return []Source{chosen}
	}
	return []Source{registry, SourceDebian}
}

// plans returns the ways in which an image may be made, best first.
func (o Options) plans(name string) ([]plan, error) {
	var python, node bool
	switch name {
	case "python":
		python = true
	case "node":
		node = true
	case "dual":
		python, node = true, true
	case benchImage:
	default:
		return nil, fmt.Errorf("rootfs: %w %q (there are python, node, dual and bench)", ErrUnknownImage, name)
	}
	var plans []plan
	for _, p := range sources(python, o.Python, SourcePyPI) {
		for _, n := range sources(node, o.Node, SourceNPM) {
			plans = append(plans, plan{name: name, python: p, node: n})
		}
	}
	return plans, nil
}
