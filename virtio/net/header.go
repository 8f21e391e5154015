package net

import "encoding/binary"

// A header stands before each frame, in both directions and on the tap as
// well (virtio 1.3 §5.1.6, struct virtio_net_hdr with num_buffers):
//
//	0       1         2        4         6           8            10           12
//	│ flags │ gso_type│ hdr_len│ gso_size│ csum_start│ csum_offset│ num_buffers│
const (
	headerSize = 12

	offFlags      = 0
	offGSOType    = 1
	offHdrLen     = 2
	offGSOSize    = 4
	offCSumStart  = 6
	offCSumOffset = 8
	offNumBuffers = 10
)

const (
	flagNeedsCSum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM

	gsoNone  = 0    // VIRTIO_NET_HDR_GSO_NONE
	gsoTCPv4 = 1    // VIRTIO_NET_HDR_GSO_TCPV4
	gsoTCPv6 = 4    // VIRTIO_NET_HDR_GSO_TCPV6
	gsoECN   = 0x80 // VIRTIO_NET_HDR_GSO_ECN, beside one of the TCP types
)

// Frame lengths in bytes, without the header.
const (
	minFrame = 14           // an Ethernet header
	maxFrame = 14 + 1<<16   // virtio 1.3 §5.1.6.3.1: the largest with TSO
	maxRead  = maxFrame + 4 // and with a VLAN tag, which a host may add
)

// cleanHeader checks the copy of a header that a driver put before a frame
// of the given length, and sets what means nothing to zero. It returns false
// when the frame must be dropped. The host's kernel checks again, but what it
// gets from here is never outside of the frame and never a type of offload
// that was not negotiated.
func cleanHeader(h *[headerSize]byte, frame uint32, features uint64) bool {
	le := binary.LittleEndian
	// §5.1.6.2.2: flags that the device does not know are ignored. The others
	// that exist are for the other direction.
	h[offFlags] &= flagNeedsCSum
	le.PutUint16(h[offNumBuffers:], 0)

	needsCSum := h[offFlags] != 0
	if needsCSum {
		sum := uint32(le.Uint16(h[offCSumStart:])) + uint32(le.Uint16(h[offCSumOffset:]))
		if features&FeatureCSum == 0 || sum+2 > frame {
			return false
		}
	} else {
		le.PutUint32(h[offCSumStart:], 0)
	}

	if h[offGSOType] == gsoNone {
		le.PutUint32(h[offHdrLen:], 0) // with gso_size
		return true
	}
	var need uint64
	switch h[offGSOType] &^ gsoECN {
	case gsoTCPv4:
		need = FeatureHostTSO4
	case gsoTCPv6:
		need = FeatureHostTSO6
	default:
		return false
	}
	if h[offGSOType]&gsoECN != 0 {
		need |= FeatureHostECN
	}
	// §5.1.6.2.1: segmentation needs the checksum and a size.
	return features&need == need && needsCSum &&
		le.Uint16(h[offGSOSize:]) != 0 && uint32(le.Uint16(h[offHdrLen:])) <= frame
}
