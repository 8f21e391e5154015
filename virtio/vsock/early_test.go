package vsock

import (
	"fmt"
	"io"
	"net"
	"testing"
)

// What the host has said before the guest has accepted goes with the request, once, and is
// counted against the credit that the guest then gives.
func TestEarlyBytes(t *testing.T) {
	r := newRig(t, nil)
	c := r.ask(7)
	request, _ := r.expect(opRequest)
	io.WriteString(c, "late") // not early enough: waits for the answer
	r.silent("before the guest has accepted")
	r.send(header{srcPort: 7, dstPort: request.srcPort, op: opResponse, bufAlloc: 1 << 20}, nil)
	if _, payload := r.expect(opData); string(payload) != "late" {
		t.Errorf("guest got %q", payload)
	}

	c = r.dialEarly(8, "early")
	request, _ = r.expect(opRequest)
	if h, payload := r.expect(opData); string(payload) != "early" || h.dstPort != 8 || h.srcPort != request.srcPort {
		t.Errorf("packet %+v %q", h, payload)
	}
	io.WriteString(c, "more")
	r.silent("before the guest has accepted")
	r.send(header{srcPort: 8, dstPort: request.srcPort, op: opResponse, bufAlloc: 7}, nil)
	if _, payload := r.expect(opData); string(payload) != "mo" {
		t.Errorf("guest got %q beyond the early bytes, with room for 7", payload)
	}
	if _, err := fmt.Fscanf(c, "OK %d\n", new(uint32)); err != nil {
		t.Error(err)
	}
}

// A guest that refuses resets for the request and for what came with it.
func TestEarlyBytesRefused(t *testing.T) {
	r := newRig(t, nil)
	c := r.dialEarly(9, "early")
	request, _ := r.expect(opRequest)
	r.expect(opData)
	for range 2 {
		r.send(header{srcPort: 9, dstPort: request.srcPort, op: opReset}, nil)
	}
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("read %q, %v", b, err)
	}
	r.dial(9, 1<<20)
}

// dialEarly asks for a connection and sends bytes on it in one go.
func (r *rig) dialEarly(port uint32, s string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("unix", r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "CONNECT %d\n%s", port, s)
	return c
}
