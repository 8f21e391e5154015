package client

import (
	"os"
	"path/filepath"
	"strings"

	"thaw/api"
	"thaw/internal/checkout"
)

// DefaultSocket is where thawd listens unless told otherwise.
const DefaultSocket = "/run/thaw/thawd.sock"

// HostEnv is the environment variable that names the daemon's host.
const HostEnv = "THAW_HOST"

// LabSocket is where the lab forwards the socket of the daemon in it: the user's
// runtime directory, or /run/thaw where there is none. Programs of one source tree
// agree on it and share it with no other tree; others name the socket that
// `thaw lab status` shows.
func LabSocket() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, checkout.Suffixed("thaw-lab")+".sock")
	}
	return filepath.Join("/run/thaw", checkout.Suffixed("lab")+".sock")
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
