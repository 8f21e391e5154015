// Package apt reads what this host's apt knows of Debian: which archives it uses
// and how it reaches them. Images and the lab's tools are fetched the same way,
// so that they come from the same, maybe nearer, maybe only mirror.
//
// Nothing here runs apt to change something, and nothing fails: a host without
// apt, or one of another distribution, gets Debian's own addresses.
package apt

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mirrors are the archives that a Debian tree is made from: URIs without a slash
// at the end.
type Mirrors struct {
	Main     string
	Security string
}

// defaults serve hosts whose own configuration names no Debian archive.
var defaults = Mirrors{
	Main:     "http://deb.debian.org/debian",
	Security: "http://deb.debian.org/debian-security",
}

// debianSuites are names under which hosts subscribe to Debian itself, as
// against third parties' archives for Debian.
var debianSuites = []string{"bookworm", "trixie", "forky", "sid", "oldstable", "stable", "testing", "unstable"}

// HostMirrors returns the archives that this host's own apt uses, by the source
// lists in etc, which is /etc/apt.
func HostMirrors(etc string) Mirrors {
	found := Mirrors{}
	files, _ := filepath.Glob(filepath.Join(etc, "sources.list.d", "*"))
	for _, file := range append([]string{filepath.Join(etc, "sources.list")}, files...) {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		switch filepath.Ext(file) {
		case ".list":
			found.addOneLine(raw)
		case ".sources":
			found.addDeb822(raw)
		}
	}
	if found.Main == "" {
		return defaults
	}
	if found.Security == "" {
		found.Security = defaults.Security
	}
	return found
}

// addOneLine reads the one-line format of sources.list(5):
// "deb [options] URI suite component…".
func (m *Mirrors) addOneLine(raw []byte) {
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for lines.Scan() {
		line, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), "deb ")
		if !ok {
			continue
		}
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			_, line, _ = strings.Cut(line, "]")
		}
		if f := strings.Fields(line); len(f) >= 3 {
			m.add(f[:1], f[1:2], f[2:])
		}
	}
}

// addDeb822 reads the stanza format of sources.list(5). A malformed file is no
// reason to fail: apt itself ignores or reports it, and there is a default.
func (m *Mirrors) addDeb822(raw []byte) {
	_ = ReadStanzas(bytes.NewReader(raw), []string{"types", "uris", "suites", "components", "enabled"},
		func(s map[string]string) error {
			if slices.Contains(strings.Fields(s["types"]), "deb") && !strings.EqualFold(s["enabled"], "no") {
				m.add(strings.Fields(s["uris"]), strings.Fields(s["suites"]), strings.Fields(s["components"]))
			}
			return nil
		})
}

// add takes the first archive of Debian's main component for each suite kind.
func (m *Mirrors) add(uris, suites, components []string) {
	if len(uris) == 0 || !slices.Contains(components, "main") {
		return
	}
	uri := strings.TrimRight(resolveMirrorList(uris[0]), "/")
	if !strings.HasPrefix(uri, "http://") && !strings.HasPrefix(uri, "https://") {
		return
	}
	for _, suite := range suites {
		name, isSecurity := strings.CutSuffix(suite, "-security")
		switch {
		case !slices.Contains(debianSuites, name):
		case isSecurity && m.Security == "":
			m.Security = uri
		case !isSecurity && m.Main == "":
			m.Main = uri
		}
	}
}

// resolveMirrorList returns the first archive of a mirror list
// (apt-transport-mirror(1)), which Debian's cloud images use.
func resolveMirrorList(uri string) string {
	path, ok := strings.CutPrefix(uri, "mirror+file:")
	if !ok {
		return uri
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 0 && !strings.HasPrefix(f[0], "#") {
			return f[0]
		}
	}
	return ""
}

// Sources returns the sources.list lines of a suite, with its updates.
func (m Mirrors) Sources(suite string) []string {
	return []string{
		"deb " + m.Main + " " + suite + " main",
		"deb " + m.Main + " " + suite + "-updates main",
		"deb " + m.Security + " " + suite + "-security main",
	}
}
