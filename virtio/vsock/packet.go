package vsock

import "encoding/binary"

// headerSize is the length of a packet's header, virtio 1.3 §5.10.6.
const headerSize = 44

// Operations.
const (
	opRequest       = 1
	opResponse      = 2
	opReset         = 3
	opShutdown      = 4
	opData          = 5 // VIRTIO_VSOCK_OP_RW
	opCreditUpdate  = 6
	opCreditRequest = 7
)

const typeStream = 1

// Flags of a shutdown: what its sender will not do any more.
const (
	shutdownReceive = 1
	shutdownSend    = 2
	shutdownBoth    = shutdownReceive | shutdownSend
)

// header is a packet's header. A parsed one is a copy of the guest's bytes,
// which it may change after we looked.
type header struct {
	srcCID, dstCID   uint64
	srcPort, dstPort uint32
	length           uint32
	kind, op         uint16
	flags            uint32
	bufAlloc, fwdCnt uint32
}

func parseHeader(b *[headerSize]byte) header {
	le := binary.LittleEndian
	return header{
		srcCID: le.Uint64(b[0:]), dstCID: le.Uint64(b[8:]),
		srcPort: le.Uint32(b[16:]), dstPort: le.Uint32(b[20:]),
		length: le.Uint32(b[24:]), kind: le.Uint16(b[28:]), op: le.Uint16(b[30:]),
		flags: le.Uint32(b[32:]), bufAlloc: le.Uint32(b[36:]), fwdCnt: le.Uint32(b[40:]),
	}
}

func (h *header) encode(b *[headerSize]byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], h.srcCID)
	le.PutUint64(b[8:], h.dstCID)
	le.PutUint32(b[16:], h.srcPort)
	le.PutUint32(b[20:], h.dstPort)
	le.PutUint32(b[24:], h.length)
	le.PutUint16(b[28:], h.kind)
	le.PutUint16(b[30:], h.op)
	le.PutUint32(b[32:], h.flags)
	le.PutUint32(b[36:], h.bufAlloc)
	le.PutUint32(b[40:], h.fwdCnt)
}

// pair names a connection: the host's and the guest's port.
type pair struct{ host, guest uint32 }
