package client

import (
	"os"
	"path/filepath"
	"strings"

	"thaw/api"
)

// DefaultSocket is where thawd listens unless told otherwise.
const DefaultSocket = "/run/thaw/thawd.sock"

// HostEnv is the environment variable that names the daemon's host.
const HostEnv = "THAW_HOST"

const labSocketName = "thaw-lab.sock"

// LabSocket is where the lab forwards the socket of the daemon in it: the user's
// runtime directory, or /run/thaw where there is none.
func LabSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, labSocketName)
	}
	return "/run/thaw/lab.sock"
}

// Resolve turns a host as users write it into a socket's path: "" is $THAW_HOST or
// the default, "local" is the default, "lab" is the lab's, unix:///path and plain
// absolute paths are themselves.
func Resolve(host string) (string, error) {
	if host == "" {
		host = os.Getenv(HostEnv)
	}
	switch host {
	case "", "local":
		return DefaultSocket, nil
	case "lab":
		return LabSocket(), nil
	}
	path := strings.TrimPrefix(host, "unix://")
	if !filepath.IsAbs(path) {
		return "", api.Errorf(api.CodeBadRequest, "host %q is not understood", host).
			WithRemedy("use local, lab, or unix:///path/of/socket")
	}
	return path, nil
}
