package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"thaw/internal/hostcmd"
)

// errorLines is how much of each log an error carries.
const errorLines = 20

// rotate keeps the log of the boot before this one, as path.old.
func rotate(path string) error {
	if err := os.Rename(path, path+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lab: keep old log: %w", err)
	}
	return nil
}

// bootError is a lab that died or did not come up: a one-line cause, and the
// last lines of console and tools' log.
type bootError struct {
	cause error
	logs  string
}

func (e *bootError) Error() string { return e.cause.Error() + e.logs }
func (e *bootError) Unwrap() error { return e.cause }

// withLogs adds to err the kernel's own last word, when there is one, and the
// logs in stateDir.
func withLogs(err error, stateDir string) error {
	e := &bootError{cause: err}
	for _, name := range []string{consoleFile, toolsLog} {
		b, readErr := os.ReadFile(filepath.Join(stateDir, name))
		if readErr != nil || len(b) == 0 {
			continue // an error without its logs is still the error
		}
		b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
		if fault := findFault(string(b)); name == consoleFile && fault != "" {
			e.cause = fmt.Errorf("%w: %s", err, fault)
		}
		e.logs += fmt.Sprintf("\n--- last lines of %s ---\n%s", name, hostcmd.LastLines(string(b), errorLines))
	}
	return e
}

// cause returns the one-line cause of err.
func cause(err error) string {
	if e, ok := errors.AsType[*bootError](err); ok {
		return e.cause.Error()
	}
	return err.Error()
}

// findFault returns the first line of a console by which a kernel, or labinit,
// says why it dies, without the time stamp.
func findFault(console string) string {
	for line := range strings.Lines(console) {
		for _, sign := range []string{"Kernel panic", "Oops", "BUG:", "general protection", "labinit: "} {
			if i := strings.Index(line, sign); i >= 0 {
				return strings.TrimSpace(line[i:])
			}
		}
	}
	return ""
}
