package labproto

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// FuzzReader feeds arbitrary bytes: every frame that is read must be within its
// bounds and encode back to the bytes it came from.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\x05\x00\x00\x00\x02\x00\x00\x00ok\x04\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x01\x00\x00\x00\x0d\x00\x00\x00{\"op\":\"info\"}"))
	f.Add([]byte("\x05\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		var out bytes.Buffer
		for {
			fr, err := r.Read()
			if err != nil {
				if !errors.Is(err, ErrFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("untyped error %v", err)
				}
				break
			}
			if err := Write(&out, fr.Type, fr.Data); err != nil {
				t.Fatalf("frame read but not writable: %v", err)
			}
		}
		if !bytes.HasPrefix(in, out.Bytes()) {
			t.Fatal("frames do not encode back to their bytes")
		}
	})
}

// FuzzRequest feeds arbitrary bytes as a request: no panic, and a request that
// passes Check has what its operation needs.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"op":"exec","argv":["true"]}`))
	f.Add([]byte(`{"op":"connect","path":"/run/x"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > MaxRequest {
			return
		}
		var b bytes.Buffer
		Write(&b, TypeRequest, in)
		var r Request
		if ReadJSON(NewReader(&b), TypeRequest, &r) != nil || r.Check() != nil {
			return
		}
		if r.Op == OpExec && r.Argv[0] == "" || r.Op == OpConnect && r.Path[0] != '/' {
			t.Fatalf("checked request lacks something: %+v", r)
		}
	})
}
