package collect

import (
	"errors"
	"strconv"
	"strings"

	"thaw/api"
)

// printable gives a path that may be shown: as it is if it passes, else quoted and shortened.
func printable(p string) string {
	if api.CheckPath(p) == nil {
		return p
	}
	if len(p) > api.MaxPath {
		p = p[:api.MaxPath]
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
