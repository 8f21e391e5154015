package agentproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func header(t FrameType, flags uint8, reserved uint16, length uint32) []byte {
	b := []byte{byte(t), flags}
	b = binary.LittleEndian.AppendUint16(b, reserved)
	return binary.LittleEndian.AppendUint32(b, length)
}

func TestReaderRoundTrip(t *testing.T) {
	var wire []byte
	want := []Frame{
		{Type: FramePing, Payload: []byte{}},
		{Type: FrameStdin, Flags: FlagEnd, Payload: []byte("x")},
		{Type: FrameStdout, Flags: FlagTail, Payload: bytes.Repeat([]byte("y"), MaxPayload)},
		{Type: FrameExit, Payload: bytes.Repeat([]byte("z"), 5000)},
	}
	for _, f := range want {
		var err error
		if wire, err = AppendFrame(wire, f.Type, f.Flags, f.Payload); err != nil {
			t.Fatal(err)
		}
	}
	for name, src := range map[string]io.Reader{
		"whole": bytes.NewReader(wire), "bytewise": iotest.OneByteReader(bytes.NewReader(wire)),
	} {
		r := NewReader(src)
		for i, w := range want {
			f, err := r.Next()
			if err != nil {
				t.Fatalf("%s: frame %d: %v", name, i, err)
			}
			if f.Type != w.Type || f.Flags != w.Flags || !bytes.Equal(f.Payload, w.Payload) {
				t.Errorf("%s: frame %d is %s 0x%x of %d bytes", name, i, f.Type, f.Flags, len(f.Payload))
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		wire []byte
		want error
	}{
		{"unknown type", header(0x3f, 0, 0, 0), ErrProtocol},
		{"type zero", header(0, 0, 0, 0), ErrProtocol},
		{"unknown flags", header(FramePing, 0x80, 0, 0), ErrProtocol},
		{"reserved bytes", header(FramePing, 0, 1, 0), ErrProtocol},
		{"too long", header(FramePing, 0, 0, MaxPayload+1), ErrProtocol},
		{"longest number", header(FramePing, 0, 0, 0xffffffff), ErrProtocol},
		{"cut header", header(FramePing, 0, 0, 0)[:5], io.ErrUnexpectedEOF},
		{"cut payload", append(header(FramePing, 0, 0, 10), 1, 2, 3), io.ErrUnexpectedEOF},
		{"no payload", header(FramePing, 0, 0, 10), io.ErrUnexpectedEOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReader(bytes.NewReader(c.wire))
			if _, err := r.Next(); !errors.Is(err, c.want) {
				t.Errorf("error is %v, want %v", err, c.want)
			}
			if len(r.buf) > MaxPayload {
				t.Errorf("buffer has %d bytes", len(r.buf))
			}
		})
	}
}

func TestAppendFrameBound(t *testing.T) {
	if _, err := AppendFrame(nil, FrameStdin, 0, make([]byte, MaxPayload+1)); err == nil {
		t.Error("a frame over the bound was made")
	}
}

func TestCredit(t *testing.T) {
	b := AppendCredit(nil, 123456)
	f, err := NewReader(bytes.NewReader(b)).Next()
	if err != nil || f.Type != FrameStdinCredit {
		t.Fatalf("%v, %v", f, err)
	}
	if n, err := ParseCredit(f.Payload); n != 123456 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := ParseCredit(f.Payload[:3]); !errors.Is(err, ErrProtocol) {
		t.Errorf("short credit: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(header(FramePing, 0, 0, 0))
	f.Add(append(header(FrameStdin, FlagEnd, 0, 3), "abc"...))
	f.Add(append(AppendCredit(nil, 7), header(FrameExec, 0, 0, 65536)...))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := NewReader(bytes.NewReader(wire))
		var again []byte
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}
			if len(fr.Payload) > MaxPayload || fr.Flags&^flagsKnown != 0 {
				t.Fatalf("frame out of bounds: %v", fr)
			}
			if again, err = AppendFrame(again, fr.Type, fr.Flags, fr.Payload); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(wire, again) {
			t.Fatal("frames do not write back to what was read")
		}
	})
}
