package vmmproto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrInvalid is wrapped by every error of the decoders: the peer broke the protocol.
var ErrInvalid = errors.New("invalid message")

type envelope struct {
	Kind Kind            `json:"kind"`
	Body json.RawMessage `json:"body"`
}

// fromDaemon and fromVMM make an empty message of each kind that goes that way.
var (
	fromDaemon = map[Kind]func() Message{
		KindStart:          func() Message { return new(Start) },
		KindPing:           func() Message { return new(Ping) },
		KindPause:          func() Message { return new(Pause) },
		KindResume:         func() Message { return new(Resume) },
		KindStop:           func() Message { return new(Stop) },
		KindStatsRequest:   func() Message { return new(StatsRequest) },
		KindConsoleRequest: func() Message { return new(ConsoleRequest) },
		KindSetBalloon:     func() Message { return new(SetBalloon) },
		KindMemoryStats:    func() Message { return new(MemoryStats) },
		KindRestore:        func() Message { return new(Restore) },
		KindSave:           func() Message { return new(Save) },
		KindChanges:        func() Message { return new(Changes) },
		KindConnected:      func() Message { return new(Connected) },
		KindRefused:        func() Message { return new(Refused) },
		KindHandle:         func() Message { return new(Handle) },
	}
	fromVMM = map[Kind]func() Message{
		KindStarted:  func() Message { return new(Started) },
		KindRestored: func() Message { return new(Restored) },
		KindSaved:    func() Message { return new(Saved) },
		KindChanged:  func() Message { return new(Changed) },
		KindFailed:   func() Message { return new(Failed) },
		KindPong:     func() Message { return new(Pong) },
		KindDone:     func() Message { return new(Done) },
		KindStats:    func() Message { return new(Stats) },
		KindConsole:  func() Message { return new(Console) },
		KindConnect:  func() Message { return new(Connect) },
		KindExited:   func() Message { return new(Exited) },
	}
)

// Encode checks m and returns its packet.
func Encode(m Message) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("vmmproto: encode %s: %w", m.Kind(), err)
	}
	body, err := marshal(m)
	if err != nil {
		return nil, fmt.Errorf("vmmproto: encode %s: %w", m.Kind(), err)
	}
	b, err := marshal(envelope{m.Kind(), body})
	if err != nil {
		return nil, fmt.Errorf("vmmproto: encode %s: %w", m.Kind(), err)
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("vmmproto: encode %s: %d bytes, most is %d", m.Kind(), len(b), MaxMessage)
	}
	return b, nil
}

// marshal is json.Marshal without the escapes for HTML, which make six bytes of one: the bounds of this package
// are such that the largest message of each kind fits into MaxMessage when a byte becomes two.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// DecodeFromDaemon decodes a packet that thaw-vmm received with files descriptors. Errors wrap [ErrInvalid].
func DecodeFromDaemon(b []byte, files int) (Message, error) { return decode(fromDaemon, b, files) }

// DecodeFromVMM decodes a packet that the daemon received from thaw-vmm. The bytes are hostile.
// Errors wrap [ErrInvalid].
func DecodeFromVMM(b []byte) (Message, error) { return decode(fromVMM, b, 0) }

func decode(kinds map[Kind]func() Message, b []byte, files int) (Message, error) {
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("vmmproto: decode: %w: %d bytes, most is %d", ErrInvalid, len(b), MaxMessage)
	}
	var env envelope
	if err := strict(b, &env); err != nil {
		return nil, fmt.Errorf("vmmproto: decode: %w: %w", ErrInvalid, err)
	}
	newMessage, ok := kinds[env.Kind]
	if !ok {
		return nil, fmt.Errorf("vmmproto: decode: %w: kind %.40q does not come from this side", ErrInvalid, env.Kind)
	}
	m := newMessage()
	if err := strict(env.Body, m); err != nil {
		return nil, fmt.Errorf("vmmproto: decode %s: %w: %w", env.Kind, ErrInvalid, err)
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("vmmproto: decode %s: %w: %w", env.Kind, ErrInvalid, err)
	}
	if want := m.Descriptors(); files != want {
		return nil, fmt.Errorf("vmmproto: decode %s: %w: %d descriptors, want %d", env.Kind, ErrInvalid, files, want)
	}
	return m, nil
}

// strict decodes exactly one JSON object with known fields.
func strict(b []byte, v any) error {
	// "null" would decode into any struct without a complaint.
	if !bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) {
		return errors.New("not an object")
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more after the object")
	}
	return nil
}
