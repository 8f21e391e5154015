package agentproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	// HeaderSize is the size of a frame's header in bytes.
	HeaderSize = 8
	// MaxPayload is the largest payload of one frame in bytes.
	MaxPayload = 64 << 10
	// Port is the vsock port that the agent listens on.
	Port = 1024
	// ReadyPort is the port on the host (CID 2) that the agent dials once it
	// listens. It writes one FrameReady and closes.
	ReadyPort = 1025
	// Version is the protocol's version: raised when an old peer could
	// misunderstand a new one. New optional fields do not raise it.
	Version = 1
)

// ErrProtocol is wrapped by every error that says the peer broke the
// protocol. A connection that saw one is of no further use.
var ErrProtocol = errors.New("protocol violation")

// FrameType says what a frame's payload is.
type FrameType uint8

// Requests, host to guest: each starts an exchange on an idle connection.
const (
	FramePing     FrameType = 0x01
	FrameInfo     FrameType = 0x02
	FrameExec     FrameType = 0x03
	FramePut      FrameType = 0x04
	FrameGet      FrameType = 0x05
	FrameList     FrameType = 0x06
	FrameUsage    FrameType = 0x07
	FrameShutdown FrameType = 0x08
	// FrameFreeze carries a FreezeRequest, FrameOK a FreezeResult.
	FrameFreeze FrameType = 0x09
	// FrameThaw has an empty payload.
	FrameThaw FrameType = 0x0a
	// FrameGeneration carries a Generation, FrameOK a GenerationResult.
	FrameGeneration FrameType = 0x0b
	// FrameAttach carries an AttachRequest; what follows is as for FrameExec.
	FrameAttach FrameType = 0x0c
	// FrameWarm, FrameRun and FrameCode are about warm interpreters.
	FrameWarm FrameType = 0x0d
	FrameRun  FrameType = 0x0e
	FrameCode FrameType = 0x0f
	// Up to 0x1f is kept for later requests.
)

// Frames within an exchange, host to guest.
const (
	// FrameStdin carries raw bytes; FlagEnd closes the job's standard input.
	FrameStdin FrameType = 0x20
	// FrameSignal carries a Signal.
	FrameSignal FrameType = 0x21
	// FrameCancel ends the exec: SIGTERM, grace, kill; empty payload.
	FrameCancel FrameType = 0x22
	// FramePutData carries raw bytes of a file; FlagEnd says it is whole.
	FramePutData FrameType = 0x23
)

// Frames guest to host.
const (
	// FrameOK ends an exchange that succeeded; the payload depends on the
	// request.
	FrameOK FrameType = 0x40
	// FrameError ends an exchange that failed; the payload is an Error.
	FrameError FrameType = 0x41
	// FrameStarted carries a Started: the program runs.
	FrameStarted FrameType = 0x42
	// FrameStdout carries raw bytes; FlagTail marks those after a gap.
	FrameStdout FrameType = 0x43
	// FrameStderr is like FrameStdout.
	FrameStderr FrameType = 0x44
	// FrameExit carries an ExitStatus and ends an exec.
	FrameExit FrameType = 0x45
	// FrameStdinCredit carries a little-endian u32: so many more bytes of
	// standard input may be sent.
	FrameStdinCredit FrameType = 0x46
	// FrameFileData carries raw bytes of a file being read.
	FrameFileData FrameType = 0x47
	// FrameEntries carries a list of FileInfo.
	FrameEntries FrameType = 0x48
	// FrameReady carries an Info to the ready port.
	FrameReady FrameType = 0x49
)

var frameNames = map[FrameType]string{
	FramePing: "ping", FrameInfo: "info", FrameExec: "exec", FramePut: "put", FrameGet: "get",
	FrameList: "list", FrameUsage: "usage", FrameShutdown: "shutdown",
	FrameFreeze: "freeze", FrameThaw: "thaw", FrameGeneration: "generation", FrameAttach: "attach",
	FrameWarm: "warm", FrameRun: "run", FrameCode: "code",
	FrameStdin: "stdin", FrameSignal: "signal", FrameCancel: "cancel", FramePutData: "put-data",
	FrameOK: "ok", FrameError: "error", FrameStarted: "started", FrameStdout: "stdout",
	FrameStderr: "stderr", FrameExit: "exit", FrameStdinCredit: "stdin-credit",
	FrameFileData: "file-data", FrameEntries: "entries", FrameReady: "ready",
}

// String names the type for messages.
func (t FrameType) String() string {
	if name, ok := frameNames[t]; ok {
		return name
	}
	return fmt.Sprintf("0x%02x", uint8(t))
}

// Flags of a frame. Unknown bits are a protocol violation.
const (
	// FlagEnd is on the last FrameStdin or FramePutData.
	FlagEnd uint8 = 1 << 0
	// FlagTail is on output frames that come after dropped bytes.
	FlagTail uint8 = 1 << 1

	flagsKnown = FlagEnd | FlagTail
)

// Frame is one received frame.
type Frame struct {
	Type  FrameType
	Flags uint8
	// Payload is valid until the next read from the same Reader.
	Payload []byte
}

// Reader reads frames from one peer. It owns one payload buffer, grown to the
// largest frame seen and never beyond MaxPayload. Not safe for concurrent use.
type Reader struct {
	r   io.Reader
	hdr [HeaderSize]byte
	buf []byte
}

// NewReader returns a Reader on r. The caller buffers r if small reads are
// dear there.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next reads one frame. It returns io.EOF if the peer closed between frames,
// an error wrapping io.ErrUnexpectedEOF inside one, and one wrapping
// ErrProtocol if the header is not valid. No payload memory is taken before
// the header was checked.
func (r *Reader) Next() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.hdr[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return Frame{}, io.EOF
		}
		return Frame{}, fmt.Errorf("agentproto: read frame header: %w", err)
	}
	f, length, err := parseHeader(r.hdr)
	if err != nil {
		return Frame{}, err
	}
	if length > len(r.buf) {
		r.buf = make([]byte, roundUp(length))
	}
	f.Payload = r.buf[:length]
	if _, err := io.ReadFull(r.r, f.Payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, fmt.Errorf("agentproto: read payload of %s frame: %w", f.Type, err)
	}
	return f, nil
}

func parseHeader(h [HeaderSize]byte) (Frame, int, error) {
	f := Frame{Type: FrameType(h[0]), Flags: h[1]}
	if _, ok := frameNames[f.Type]; !ok {
		return Frame{}, 0, fmt.Errorf("agentproto: frame type %s is unknown: %w", f.Type, ErrProtocol)
	}
	if f.Flags&^flagsKnown != 0 {
		return Frame{}, 0, fmt.Errorf("agentproto: %s frame has unknown flags 0x%02x: %w", f.Type, f.Flags, ErrProtocol)
	}
	if r := binary.LittleEndian.Uint16(h[2:]); r != 0 {
		return Frame{}, 0, fmt.Errorf("agentproto: %s frame has reserved bytes 0x%04x: %w", f.Type, r, ErrProtocol)
	}
	length := binary.LittleEndian.Uint32(h[4:])
	if length > MaxPayload {
		return Frame{}, 0, fmt.Errorf("agentproto: %s frame of %d bytes is over the bound of %d: %w", f.Type, length, MaxPayload, ErrProtocol)
	}
	return f, int(length), nil
}

// roundUp gives buffer sizes in a few steps, so that a stream of slowly
// growing frames does not allocate each time.
func roundUp(n int) int {
	for _, size := range []int{512, 4 << 10, 16 << 10} {
		if n <= size {
			return size
		}
	}
	return MaxPayload
}

// PutHeader writes a frame's header into the first HeaderSize bytes of b.
//
// Preconditions: len(b) >= HeaderSize and length <= MaxPayload.
func PutHeader(b []byte, t FrameType, flags uint8, length int) {
	b[0], b[1] = byte(t), flags
	binary.LittleEndian.PutUint16(b[2:], 0)
	binary.LittleEndian.PutUint32(b[4:], uint32(length))
}

// AppendFrame appends a frame with the payload to dst. It returns an error if
// the payload is over MaxPayload.
func AppendFrame(dst []byte, t FrameType, flags uint8, payload []byte) ([]byte, error) {
	if len(payload) > MaxPayload {
		return dst, fmt.Errorf("agentproto: %s frame of %d bytes is over the bound of %d", t, len(payload), MaxPayload)
	}
	var h [HeaderSize]byte
	PutHeader(h[:], t, flags, len(payload))
	return append(append(dst, h[:]...), payload...), nil
}

// AppendMessage appends a frame whose payload is v in CBOR; a nil v gives an
// empty payload.
func AppendMessage(dst []byte, t FrameType, v any) ([]byte, error) {
	if v == nil {
		return AppendFrame(dst, t, 0, nil)
	}
	payload, err := encMode.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("agentproto: encode %s message: %w", t, err)
	}
	return AppendFrame(dst, t, 0, payload)
}

// ParseCredit reads the payload of a FrameStdinCredit.
func ParseCredit(payload []byte) (uint32, error) {
	if len(payload) != 4 {
		return 0, fmt.Errorf("agentproto: stdin credit of %d bytes: %w", len(payload), ErrProtocol)
	}
	return binary.LittleEndian.Uint32(payload), nil
}

// AppendCredit appends a FrameStdinCredit to dst.
func AppendCredit(dst []byte, n uint32) []byte {
	var h [HeaderSize]byte
	PutHeader(h[:], FrameStdinCredit, 0, 4)
	return binary.LittleEndian.AppendUint32(append(dst, h[:]...), n)
}
