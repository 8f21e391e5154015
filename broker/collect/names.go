package collect

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of an artifact's path, in bytes: what ext4 and most file systems that a
// client may copy it to can hold.
const (
	maxPath = 1024
	maxName = 255
)

// CheckPath accepts a relative path that means the same on every file system it
// may be copied to and on every terminal it may be printed on: valid UTF-8, parts
// between single slashes, none of them "." or "..", nothing unprintable, no
// backslash. Clients use it too before they write a file of that name.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("name is empty")
	case len(p) > maxPath:
		return errors.New("path is longer than " + strconv.Itoa(maxPath) + " bytes")
	case !utf8.ValidString(p):
		return errors.New("name is not valid UTF-8")
	case strings.HasPrefix(p, "/"):
		return errors.New("path is absolute")
	}
	for _, r := range p {
		// U+202A… and their like reorder what a terminal shows: unicode.IsPrint is false for them.
		if !unicode.IsPrint(r) {
			return errors.New("name holds an unprintable character")
		}
		if r == '\\' {
			return errors.New("name holds a backslash")
		}
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "":
			return errors.New("path has an empty part")
		case part == "." || part == "..":
			return errors.New("path leads elsewhere (" + part + ")")
		case len(part) > maxName:
			return errors.New("name is longer than " + strconv.Itoa(maxName) + " bytes")
		}
	}
	return nil
}

// printable gives a path that may be shown: as it is if it passes, else quoted and shortened.
func printable(p string) string {
	if CheckPath(p) == nil {
		return p
	}
	if len(p) > maxPath {
		p = p[:maxPath]
	}
	return strconv.QuoteToASCII(p)
}

// paths remembers the paths taken, to find collisions: the same path twice, two
// that differ only in case, or a file where another needs a directory.
type paths struct {
	files, dirs map[string]struct{}
}

func newPaths() *paths {
	return &paths{files: map[string]struct{}{}, dirs: map[string]struct{}{}}
}

func (s *paths) add(p string) error {
	key := strings.ToLower(p)
	if _, ok := s.files[key]; ok {
		return errors.New("collides with another name (upper and lower case are not told apart)")
	}
	if _, ok := s.dirs[key]; ok {
		return errors.New("collides with a directory")
	}
	for i, r := range key {
		if r != '/' {
			continue
		}
		if _, ok := s.files[key[:i]]; ok {
			return errors.New("collides with a file where its directory should be")
		}
	}
	for i, r := range key {
		if r == '/' {
			s.dirs[key[:i]] = struct{}{}
		}
	}
	s.files[key] = struct{}{}
	return nil
}
