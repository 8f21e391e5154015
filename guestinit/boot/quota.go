package boot

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Project ids of the two trees that jobs write to.
const (
	workspaceProject = 1
	tmpProject       = 2
)

// setQuotas limits /workspace and /tmp as the kernel command line says:
//
//	thaw.workspace_bytes=N  thaw.tmp_bytes=N
//
// Without these both share the disk.
func setQuotas() error {
	raw, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return err
	}
	for _, q := range []struct {
		key, dir string
		project  uint32
	}{
		{"thaw.workspace_bytes", "workspace", workspaceProject},
		{"thaw.tmp_bytes", "tmp", tmpProject},
	} {
		value, ok := cmdlineValue(string(raw), q.key)
		if !ok {
			continue
		}
		limit, err := strconv.ParseUint(value, 10, 64)
		if err != nil || limit == 0 {
			return fmt.Errorf("command line: %s=%q is no number of bytes", q.key, value)
		}
		if err := limitTree(writableDevice, writable+"/"+q.dir, q.project, limit); err != nil {
			return fmt.Errorf("limit %s: %w", q.dir, err)
		}
	}
	return nil
}

// cmdlineValue returns the value of the last KEY=VALUE of a command line.
func cmdlineValue(cmdline, key string) (value string, ok bool) {
	for word := range strings.FieldsSeq(cmdline) {
		if v, found := strings.CutPrefix(word, key+"="); found {
			value, ok = v, true
		}
	}
	return value, ok
}
