package manifest

import (
	"strconv"
	"strings"
)

// mergedMark parts a file's name from the number of the merge that made it:
// "index.m3". A merge writes its files beside the old ones, under new names, and the
// manifest's rename decides which of them count.
const mergedMark = ".m"

// BaseName is a file's name without the number of its merge.
func BaseName(name string) string {
	if base, n, ok := strings.Cut(name, mergedMark); ok && validNumber(n) {
		return base
	}
	return name
}

func validNumber(s string) bool {
	n, err := strconv.ParseUint(s, 10, 31)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// NextName is base with a number that no file of the manifest has.
func (m *Manifest) NextName(base string) string {
	for n := 1; ; n++ {
		name := base + mergedMark + strconv.Itoa(n)
		if _, taken := m.File(name); !taken {
			return name
		}
	}
}

// StateFile is the name of the file with the machine's state.
func (m *Manifest) StateFile() string { return m.Only(StateName) }

// IndexFile is the name of the file with the page index.
func (m *Manifest) IndexFile() string { return m.Only(IndexName) }

// Only returns the one file of this base name, or "".
func (m *Manifest) Only(base string) string {
	found := ""
	for _, f := range m.Files {
		if BaseName(f.Name) == base {
			if found != "" {
				return ""
			}
			found = f.Name
		}
	}
	return found
}
