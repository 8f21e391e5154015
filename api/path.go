package api

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the path of an input or artifact, in bytes: what ext4 and most file
// systems that a client may copy it to can hold.
const (
	MaxPath = 1024
	MaxName = 255
)

// CheckPath accepts a relative path that means the same on every file system it
// may be copied to and on every terminal it may be printed on: valid UTF-8, parts
// between single slashes, none of them "." or "..", nothing unprintable, no
// backslash. The daemon checks inputs and artifacts with it, and clients check
// again before they write a file of that name.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("name is empty")
	case len(p) > MaxPath:
		return errors.New("path is longer than " + strconv.Itoa(MaxPath) + " bytes")
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
		case len(part) > MaxName:
			return errors.New("name is longer than " + strconv.Itoa(MaxName) + " bytes")
		}
	}
	return nil
}
