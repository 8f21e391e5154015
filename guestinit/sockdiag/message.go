package sockdiag

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Sizes and types of include/uapi/linux/inet_diag.h and sock_diag.h.
const (
	sizeNlmsghdr   = 16
	sizeSockID     = 48 // struct inet_diag_sockid
	sizeReq        = 60 // struct inet_diag_req: 4, the id, states, dbs
	sizeReqV2      = 56 // struct inet_diag_req_v2: 8, the id
	sizeDiagMsg    = 72 // struct inet_diag_msg: 4, the id, 5 × u32
	tcpdiagGetsock = 18 // TCPDIAG_GETSOCK: of both families, unlike the newer type
	sockByFamily   = 20 // SOCK_DIAG_BY_FAMILY
	sockDestroy    = 21 // SOCK_DESTROY
)

// States of include/net/tcp_states.h; a mask has the bit 1<<state.
const (
	stateEstablished = 1
	stateClose       = 7
	stateListen      = 10
	stateMax         = 12 // TCP_NEW_SYN_RECV

	// connected are the states of a TCP socket that has a peer.
	connected = (1<<(stateMax+1) - 2) &^ (1<<stateClose | 1<<stateListen)
)

var native = binary.NativeEndian

// errShort says that the kernel's answer is cut.
var errShort = errors.New("netlink message is cut")

// peer is a socket that a dump found.
type peer struct {
	family uint8
	proto  uint8
	state  uint8
	id     [sizeSockID]byte // names it to the kernel, cookie included
}

// The id: sport, dport, src[4], dst[4], interface, cookie[2].
func (p *peer) source() netip.Addr      { return p.addr(4) }
func (p *peer) destination() netip.Addr { return p.addr(20) }

func (p *peer) addr(off int) netip.Addr {
	if p.family == unix.AF_INET {
		return netip.AddrFrom4([4]byte(p.id[off : off+4]))
	}
	return netip.AddrFrom16([16]byte(p.id[off : off+16])).Unmap()
}

// outside reports whether the socket's peer is not in this machine. A
// connection to an address of the machine's own has it on both sides.
func (p *peer) outside() bool { return leadsOut(p.source(), p.destination()) }

func leadsOut(src, dst netip.Addr) bool {
	return !dst.IsUnspecified() && !dst.IsLoopback() && dst != src
}

// header appends a netlink header for a payload of n bytes.
func header(b []byte, n int, typ, flags uint16, seq uint32) []byte {
	b = native.AppendUint32(b, uint32(sizeNlmsghdr+n))
	b = native.AppendUint16(b, typ)
	b = native.AppendUint16(b, flags)
	b = native.AppendUint32(b, seq)
	return native.AppendUint32(b, 0) // from any port
}

// dumpTCP appends a request for the TCP sockets of both families in one of
// the states.
func dumpTCP(b []byte, seq, states uint32) []byte {
	b = header(b, sizeReq, tcpdiagGetsock, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, seq)
	b = append(b, unix.AF_INET, 0, 0, 0)
	b = append(b, make([]byte, sizeSockID)...)
	b = native.AppendUint32(b, states)
	return native.AppendUint32(b, 0)
}

// dump appends a request for the sockets of a family and protocol.
func dump(b []byte, seq uint32, family, proto uint8, states uint32) []byte {
	b = header(b, sizeReqV2, sockByFamily, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, seq)
	b = append(b, family, proto, 0, 0)
	b = native.AppendUint32(b, states)
	return append(b, make([]byte, sizeSockID)...)
}

// destroy appends a request for the end of p.
func destroy(b []byte, seq uint32, flags uint16, p *peer) []byte {
	b = header(b, sizeReqV2, sockDestroy, unix.NLM_F_REQUEST|flags, seq)
	b = append(b, p.family, p.proto, 0, 0)
	b = native.AppendUint32(b, 1<<p.state)
	return append(b, p.id[:]...)
}

// message is one netlink message.
type message struct {
	typ, flags uint16
	seq        uint32
	payload    []byte
}

// next cuts the first message off b.
func next(b []byte) (m message, rest []byte, err error) {
	if len(b) < sizeNlmsghdr {
		return m, nil, errShort
	}
	n := int(native.Uint32(b))
	if n < sizeNlmsghdr || n > len(b) {
		return m, nil, errShort
	}
	m = message{typ: native.Uint16(b[4:]), flags: native.Uint16(b[6:]), seq: native.Uint32(b[8:]), payload: b[sizeNlmsghdr:n]}
	return m, b[min((n+3)&^3, len(b)):], nil
}

// errno reads the payload of an NLMSG_ERROR, or of an NLMSG_DONE, which has it
// where the dump failed on the way.
func (m message) errno() unix.Errno {
	if len(m.payload) < 4 {
		return 0
	}
	return unix.Errno(-int32(native.Uint32(m.payload)))
}

// parsePeer reads an inet_diag_msg.
func parsePeer(b []byte, proto uint8) (peer, error) {
	if len(b) < sizeDiagMsg {
		return peer{}, errShort
	}
	return peer{family: b[0], state: b[1], proto: proto, id: [sizeSockID]byte(b[4 : 4+sizeSockID])}, nil
}
