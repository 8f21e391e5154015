// Package api holds what the daemon and its clients say to each other: the wire
// types of the HTTP/JSON interface, its error codes, and the OpenAPI 3.1 document
// generated from them (openapi.json).
//
// The package imports nothing of the project, so that a client links no daemon
// code. Field comments give units; the `doc` tags end up in the document.
package api

import _ "embed"

// Document is the committed OpenAPI 3.1 description of the interface. A test of
// the daemon's handlers compares it with what they register.
//
//go:embed openapi.json
var Document []byte
