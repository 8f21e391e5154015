package lab

import (
	"os"
	"strings"
)

// hostOnly are variables about things that the lab does not have: its /run is
// its own.
var hostOnly = map[string]bool{
	"XDG_RUNTIME_DIR": true, "DBUS_SESSION_BUS_ADDRESS": true, "SSH_AUTH_SOCK": true,
	"NOTIFY_SOCKET": true, "DISPLAY": true, "WAYLAND_DISPLAY": true, "INVOCATION_ID": true,
}

// Environ returns this process's environment as far as it holds in the lab too:
// the same home, caches and search path, and no sockets of the host.
func Environ() []string {
	var env []string
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); !hostOnly[name] {
			env = append(env, e)
		}
	}
	return env
}
