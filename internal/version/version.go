// Package version says what a program was built from.
package version

import "runtime/debug"

// Info is what Go wrote into the program.
type Info struct {
	Version string `json:"version"`          // of the module; "unknown" without build information
	Commit  string `json:"commit,omitempty"` // full hash, when it was built in a repository
	Go      string `json:"go,omitempty"`
}

// Get returns what the running program was built from.
func Get() Info {
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{Version: "unknown"}
	}
	v := Info{Version: b.Main.Version, Go: b.GoVersion}
	for _, s := range b.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}

// Short is the beginning of the commit's hash, or the module's version.
func (i Info) Short() string {
	const length = 12
	if len(i.Commit) < length {
		return i.Version
	}
	return i.Commit[:length]
}
