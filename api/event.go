package api

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"
)

// Names of the server-sent events of a job.
const (
	EventState  = "state"  // StateEvent
	EventStdout = "stdout" // OutputEvent
	EventStderr = "stderr" // OutputEvent
	EventGap    = "gap"    // GapEvent
	EventResult = "result" // Job; the last event of a stream
)

// StateEvent says that a job entered a state.
type StateEvent struct {
	State  State     `json:"state"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// OutputEvent carries bytes of the program's stdout or stderr.
type OutputEvent struct {
	Encoding string `json:"encoding" enum:"utf-8,base64"`
	Data     string `json:"data"`
}

// Values of OutputEvent.Encoding.
const (
	EncodingUTF8   = "utf-8"
	EncodingBase64 = "base64"
)

// NewOutputEvent carries b as text where it is valid UTF-8.
func NewOutputEvent(b []byte) OutputEvent {
	if utf8.Valid(b) {
		return OutputEvent{EncodingUTF8, string(b)}
	}
	return OutputEvent{EncodingBase64, base64.StdEncoding.EncodeToString(b)}
}

// Bytes decodes the event's data.
func (e OutputEvent) Bytes() ([]byte, error) {
	switch e.Encoding {
	case EncodingUTF8:
		return []byte(e.Data), nil
	case EncodingBase64:
		b, err := base64.StdEncoding.DecodeString(e.Data)
		if err != nil {
			return nil, fmt.Errorf("api: decode output event: %w", err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("api: decode output event: unknown encoding %q", e.Encoding)
}

// GapEvent says that events were dropped because the reader was too slow or came too late.
type GapEvent struct {
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
}
