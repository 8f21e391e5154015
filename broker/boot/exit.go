package boot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"thaw/api"
	"thaw/vmm/vmmproc"
)

// Bounds of console text in an error.
const (
	maxLines     = 25
	maxLineBytes = 240
)

// LastLines makes the end of a console fit to be shown: hostile bytes to the last.
func LastLines(console []byte) string {
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(string(console)), "\r", ""), "\n")
	lines = lines[max(0, len(lines)-maxLines):]
	for i, l := range lines {
		lines[i] = Printable(l)
	}
	return strings.Join(lines, "\n")
}

// Printable replaces what a terminal could act on and bounds the length.
func Printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\t' {
			return r
		}
		return '·'
	}, strings.ToValidUTF8(s, "·"))
	if len(s) > maxLineBytes {
		s = strings.ToValidUTF8(s[:maxLineBytes], "") + "…"
	}
	return s
}

// startError explains a machine that never ran.
func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := api.Errorf(api.CodeVMMStart, "thaw-vmm could not start the machine").WithCause(err)
	var s *vmmproc.StartError
	switch {
	case errors.Is(err, vmmproc.ErrNotIsolated):
		return e.WithRemedy("`thaw doctor` says what the host lacks")
	case errors.As(err, &s) && s.Exit.Stderr != "":
		return e.WithCause(fmt.Errorf("%w\nthaw-vmm wrote:\n%s", err, LastLines([]byte(s.Exit.Stderr))))
	}
	return e
}

// exitedEarly explains a machine that ended before its agent was ready.
func exitedEarly(x vmmproc.Exit) error {
	code := api.CodeGuestNotReady
	switch x.Reason {
	case vmmproc.Killed, vmmproc.Signalled:
		code = api.CodeVMMKilled
	case vmmproc.GuestPanic, vmmproc.TripleFault:
		code = api.CodeGuestPanic
	case vmmproc.Poweroff, vmmproc.Reset, vmmproc.Stopped:
	default:
		code = api.CodeVMMFailed
	}
	return api.Errorf(code, "the machine ended before its guest was ready").
		WithCause(fmt.Errorf("%s\nlast console lines:\n%s", Detail(x), LastLines(x.Console))).
		WithRemedy("check that kernel and image fit this host (`thaw doctor`)")
}

// Detail says how a process ended, with what thaw-vmm wrote when it failed.
func Detail(x vmmproc.Exit) string {
	switch x.Reason {
	case vmmproc.Poweroff, vmmproc.Reset, vmmproc.Stopped, vmmproc.GuestPanic, vmmproc.TripleFault, vmmproc.Killed, vmmproc.Signalled:
		return x.String()
	}
	if x.Stderr == "" {
		return x.String()
	}
	return x.String() + "\nthaw-vmm wrote:\n" + LastLines([]byte(x.Stderr))
}
