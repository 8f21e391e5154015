// Package agentproto is the wire protocol between the host and the guest's
// agent: frames, messages, and the bounds on both. docs/guest-protocol.md has
// the byte layout and the state diagrams.
//
// Both ends use this package and neither trusts the other: a frame is at most
// MaxPayload bytes, CBOR is decoded with limits on nesting, arrays and maps,
// and every count and string that a message carries has a bound of its own
// (Validate). No input makes it panic.
package agentproto
