// Package httpapi serves the broker over HTTP on a Unix socket.
//
// Operations are declared in code (huma) and described by one OpenAPI document,
// which api/openapi.json holds and a test compares. The caller is the user at
// the other end of the socket (SO_PEERCRED), asked once per connection; handlers
// see only that tenant. Every failure has the body of api.Error.
package httpapi
