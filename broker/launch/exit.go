package launch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"thaw/api"
	"thaw/broker"
	"thaw/vmm/vmmproc"
)

// Bounds of console text in an error.
const (
	maxLines     = 25
	maxLineBytes = 240
)

// lastLines makes the end of a console fit to be shown: hostile bytes to the last.
func lastLines(console []byte) string {
	lines := strings.Split(strings.ReplaceAll(strings.TrimSpace(string(console)), "\r", ""), "\n")
	lines = lines[max(0, len(lines)-maxLines):]
	for i, l := range lines {
		lines[i] = printable(l)
	}
	return strings.Join(lines, "\n")
}

// printable replaces what a terminal could act on and bounds the length.
func printable(s string) string {
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

// machineExit sorts the ends of a process into those that the broker tells apart.
func machineExit(x vmmproc.Exit) broker.MachineExit {
	m := broker.MachineExit{Detail: x.String(), Reason: broker.ExitFailed}
	switch x.Reason {
	case vmmproc.Poweroff, vmmproc.Reset, vmmproc.Stopped:
		m.Reason = broker.ExitPoweroff
	case vmmproc.GuestPanic, vmmproc.TripleFault:
		m.Reason = broker.ExitPanic
	case vmmproc.Killed, vmmproc.Signalled:
		m.Reason = broker.ExitKilled
	}
	if len(x.Console) > 0 {
		m.Console = lastLines(x.Console)
	}
	if x.Stderr != "" && m.Reason == broker.ExitFailed {
		m.Detail += "\nthaw-vmm wrote:\n" + lastLines([]byte(x.Stderr))
	}
	return m
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
		return e.WithCause(fmt.Errorf("%w\nthaw-vmm wrote:\n%s", err, lastLines([]byte(s.Exit.Stderr))))
	}
	return e
}

// exitedEarly explains a machine that ended before its agent was ready.
func exitedEarly(x broker.MachineExit) error {
	code := api.CodeGuestNotReady
	switch x.Reason {
	case broker.ExitKilled:
		code = api.CodeVMMKilled
	case broker.ExitFailed:
		code = api.CodeVMMFailed
	case broker.ExitPanic:
		code = api.CodeGuestPanic
	}
	return api.Errorf(code, "the machine ended before its guest was ready").
		WithCause(fmt.Errorf("%s\nlast console lines:\n%s", x.Detail, x.Console)).
		WithRemedy("check that kernel and image fit this host (`thaw doctor`)")
}
