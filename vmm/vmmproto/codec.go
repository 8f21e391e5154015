package vmmproto

import (
	"errors"
	"fmt"
)

// ErrInvalid is wrapped by every error of the decoders: the peer broke the protocol.
var ErrInvalid = errors.New("invalid message")

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
	kind := string(m.Kind())
	c := &coder{b: make([]byte, 0, 512)}
	c.text(&kind)
	if m.fields(c); c.err != nil {
		return nil, fmt.Errorf("vmmproto: encode %s: %w", kind, c.err)
	}
	if len(c.b) > MaxMessage {
		return nil, fmt.Errorf("vmmproto: encode %s: %d bytes, most is %d", kind, len(c.b), MaxMessage)
	}
	return c.b, nil
}

// DecodeFromDaemon decodes a packet that thaw-vmm received with files descriptors. Errors wrap [ErrInvalid].
func DecodeFromDaemon(b []byte, files int) (Message, error) {
	m, err := decode(fromDaemon, b)
	if err != nil {
		return nil, err
	}
	if want := m.Descriptors(); files != want {
		return nil, fmt.Errorf("vmmproto: decode %s: %w: %d descriptors, want %d", m.Kind(), ErrInvalid, files, want)
	}
	return m, nil
}

// DecodeFromVMM decodes a packet that the daemon received from thaw-vmm. The bytes are hostile.
// Errors wrap [ErrInvalid].
func DecodeFromVMM(b []byte) (Message, error) { return decode(fromVMM, b) }

func decode(kinds map[Kind]func() Message, b []byte) (Message, error) {
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("vmmproto: decode: %w: %d bytes, most is %d", ErrInvalid, len(b), MaxMessage)
	}
	c := &coder{reads: true, b: b}
	var kind string
	if c.text(&kind); c.err != nil {
		return nil, fmt.Errorf("vmmproto: decode: %w: %w", ErrInvalid, c.err)
	}
	newMessage, ok := kinds[Kind(kind)]
	if !ok {
		return nil, fmt.Errorf("vmmproto: decode: %w: kind %.40q does not come from this side", ErrInvalid, kind)
	}
	m := newMessage()
	if m.fields(c); c.err == nil && len(c.b) > 0 {
		c.err = errLong
	}
	if c.err != nil {
		return nil, fmt.Errorf("vmmproto: decode %s: %w: %w", kind, ErrInvalid, c.err)
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("vmmproto: decode %s: %w: %w", kind, ErrInvalid, err)
	}
	return m, nil
}
