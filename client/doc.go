// Package client is the Go client of the daemon. It speaks HTTP over the daemon's
// Unix socket; every failure it returns is, or wraps, an *api.Error.
//
// What the daemon says about a job comes in part from a hostile guest: names are
// checked again before they become file names (SaveArtifacts), and every read is
// bounded.
package client
