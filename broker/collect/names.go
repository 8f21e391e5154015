package collect

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"thaw/api"
)

// Bounds of what an outcome says, so that a job's result fits into the 16 MiB that
// a client takes as one event.
const (
	// MaxRejected is how many refused files are named; more are only counted.
	MaxRejected = 100
	// maxListing bounds the list of artifacts, in bytes of JSON.
	maxListing = 8 << 20
	// artifactJSON is more than an artifact takes there beside its path: digest,
	// media type, numbers, and names of fields.
	artifactJSON = 300
	// maxReason bounds what a guest's error adds to a reason, in bytes.
	maxReason = 256
)

// listed is how many bytes an artifact takes in a list.
func listed(p string) int {
	b, _ := json.Marshal(p) // a string
	return len(b) + artifactJSON
}

// printable gives a path that may be shown: as it is if it passes, else quoted and shortened.
func printable(p string) string {
	if api.CheckPath(p) == nil {
		return p
	}
	return quoted(p, api.MaxPath)
}

// quoted makes the first bytes of hostile text safe to show.
func quoted(s string, most int) string { return strconv.QuoteToASCII(s[:min(len(s), most)]) }

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
