package apt

import (
	"context"
	"os/exec"
	"strings"
)

// HostOptions returns the settings of this host's apt on how archives are reached
// (proxies, certificates, retries) and whether an index is believed on a host
// with a wrong clock, in the form of apt.conf without the semicolons.
func HostOptions(ctx context.Context) []string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "--no-empty", "--format", `%f "%v"%n`).Output()
	if err != nil {
		return nil
	}
	return pickOptions(string(out))
}

func pickOptions(dump string) []string {
	var opts []string
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries"} {
			if strings.HasPrefix(line, prefix) {
				opts = append(opts, line)
			}
		}
	}
	return opts
}
