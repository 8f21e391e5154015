package warm

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Bounds of the frames.
const (
	// MaxSent bounds a frame to an interpreter, MaxReceived one from it.
	MaxSent     = 8 << 20
	MaxReceived = 1 << 20

	maxText    = 256
	maxModules = 256
)

// ErrProtocol is wrapped by every error that says that an interpreter broke
// the protocol. It is of no further use.
var ErrProtocol = errors.New("warm: protocol violation")

// Generation tells an interpreter to renew its random generators.
type Generation struct {
	Number uint64
	Seed   []byte
}

// Job is what an interpreter becomes. Strings are bytes, as on a command line.
type Job struct {
	Argv, Env []string
	Cwd       string
	Stdin     bool // keep descriptor 0, a pipe; else it becomes /dev/null
	// Cold names why a fresh interpreter must run the job, if one must.
	Cold string
	// Generation, if not nil, is what it renews its generators by first.
	Generation *Generation
}

// Cell is code to run in a context.
type Cell struct {
	ID     uint64
	Source string
	// Generation is as in Job.
	Generation *Generation
}

// The kinds of answers.
const (
	KindReady      = "ready"
	KindGeneration = "generation"
	KindRun        = "run"
	KindCell       = "cell"
)

// Answer is a message from an interpreter. Only the fields of its kind are
// meant to be set, and none can be trusted.
type Answer struct {
	Kind string `json:"op"`

	// Of ready.
	Runtime string   `json:"runtime"`
	Version string   `json:"version"`
	Modules int      `json:"modules"` // loaded
	Missing []string `json:"missing"` // could not be loaded
	TookUS  int64    `json:"took_us"` // to warm up, in microseconds
	Keeper  int      `json:"keeper"`  // process that shares its memory; not positive: none

	// Of generation: its number, or 0 if the program was running. Of run and cell: the number
	// of the generation that came with them, if one did.
	Number uint64 `json:"number"`

	// Of run: why a fresh interpreter is started, or the error of changing
	// the working directory, which leaves the interpreter as it was.
	Cold  string `json:"cold"`
	Errno int    `json:"errno"`

	// Of cell.
	ID      uint64  `json:"id"`
	Status  string  `json:"status"` // ok, error, interrupted
	Result  *string `json:"result"` // nil: no value
	Cut     bool    `json:"cut"`
	Type    string  `json:"type"` // of the exception
	Message string  `json:"message"`
}

// decode reads and bounds an answer.
func decode(body []byte) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("warm: decode answer: %w: %w", ErrProtocol, err)
	}
	switch a.Kind {
	case KindReady, KindGeneration, KindRun, KindCell:
	default:
		return a, fmt.Errorf("warm: answer of kind %.32q: %w", a.Kind, ErrProtocol)
	}
	switch a.Status {
	case "", "ok", "error", "interrupted":
	default:
		return a, fmt.Errorf("warm: cell status %.32q: %w", a.Status, ErrProtocol)
	}
	if a.Modules < 0 || a.TookUS < 0 || a.Errno < 0 || a.Errno > 4095 || len(a.Missing) > maxModules {
		return a, fmt.Errorf("warm: answer is out of bounds: %w", ErrProtocol)
	}
	for _, s := range append(a.Missing, a.Runtime, a.Version, a.Cold) {
		if len(s) > maxText {
			return a, fmt.Errorf("warm: text of %d bytes in an answer: %w", len(s), ErrProtocol)
		}
	}
	a.Type = Cut(a.Type, maxText)
	return a, nil
}

// Cut returns at most n bytes of s, and no half of a character.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// appendJSON appends s as a JSON string. A byte that is not part of UTF-8
// becomes the lone surrogate U+DC00 + byte, as in Python's surrogateescape.
func appendJSON(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < 0x20 || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			_, n := utf8.DecodeRuneInString(s[i:])
			if n == 1 {
				dst = append(dst, '\\', 'u', 'd', 'c', hex[c>>4], hex[c&15])
			} else {
				dst = append(dst, s[i:i+n]...)
			}
			i += n
			continue
		}
		i++
	}
	return append(dst, '"')
}

func appendList(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSON(dst, s)
	}
	return append(dst, ']')
}
