package net

import (
	"bytes"
	"testing"
)

const allSend = FeatureCSum | FeatureHostTSO4 | FeatureHostTSO6 | FeatureHostECN

func TestCleanHeader(t *testing.T) {
	for _, c := range []struct {
		name     string
		in       []byte
		frame    uint32
		features uint64
		want     []byte // nil: dropped
	}{
		{"plain", header(0, 0, 0, 0, 0, 0, 0), 60, allSend, plain},
		{"plain without features", header(0, 0, 0, 0, 0, 0, 0), 60, 0, plain},
		{"num_buffers cleared", header(0, 0, 0, 0, 0, 0, 7), 60, allSend, plain},
		{"unknown flags ignored", header(0xfe, 0, 0, 0, 0, 0, 0), 60, allSend, plain},
		{"meaningless fields cleared", header(0, 0, 66, 1448, 34, 16, 0), 60, allSend, plain},
		{"checksum", header(1, 0, 0, 0, 34, 16, 0), 60, allSend, header(1, 0, 0, 0, 34, 16, 0)},
		{"checksum at the end", header(1, 0, 0, 0, 42, 16, 0), 60, allSend, header(1, 0, 0, 0, 42, 16, 0)},
		{"checksum beyond the end", header(1, 0, 0, 0, 43, 16, 0), 60, allSend, nil},
		{"checksum sum wraps in 16 bits", header(1, 0, 0, 0, 0xffff, 0xffff, 0), 60, allSend, nil},
		{"checksum not negotiated", header(1, 0, 0, 0, 34, 16, 0), 60, 0, nil},
		{"TCPv4", header(1, 1, 54, 1448, 34, 16, 0), 9000, allSend, header(1, 1, 54, 1448, 34, 16, 0)},
		{"TCPv6", header(1, 4, 74, 1428, 54, 16, 0), 9000, allSend, header(1, 4, 74, 1428, 54, 16, 0)},
		{"TCPv4 with ECN", header(1, 0x81, 54, 1448, 34, 16, 0), 9000, allSend, header(1, 0x81, 54, 1448, 34, 16, 0)},
		{"ECN not negotiated", header(1, 0x81, 54, 1448, 34, 16, 0), 9000, allSend &^ FeatureHostECN, nil},
		{"ECN alone", header(1, 0x80, 54, 1448, 34, 16, 0), 9000, allSend, nil},
		{"TCPv4 not negotiated", header(1, 1, 54, 1448, 34, 16, 0), 9000, FeatureCSum | FeatureHostTSO6, nil},
		{"TCPv6 not negotiated", header(1, 4, 74, 1428, 54, 16, 0), 9000, FeatureCSum | FeatureHostTSO4, nil},
		{"UDP fragmentation", header(1, 3, 42, 1448, 34, 6, 0), 9000, allSend, nil},
		{"UDP segmentation", header(1, 5, 42, 1448, 34, 6, 0), 9000, allSend, nil},
		{"unknown type", header(1, 2, 54, 1448, 34, 16, 0), 9000, allSend, nil},
		{"segmentation without checksum", header(0, 1, 54, 1448, 34, 16, 0), 9000, allSend, nil},
		{"segment size zero", header(1, 1, 54, 0, 34, 16, 0), 9000, allSend, nil},
		{"header longer than the frame", header(1, 1, 9001, 1448, 34, 16, 0), 9000, allSend, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := [headerSize]byte(c.in)
			if ok := cleanHeader(&h, c.frame, c.features); ok != (c.want != nil) {
				t.Fatalf("ok %v", ok)
			}
			if c.want != nil && !bytes.Equal(h[:], c.want) {
				t.Errorf("header %x, want %x", h, c.want)
			}
		})
	}
}
