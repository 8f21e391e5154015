package net

import (
	"encoding/binary"
	"fmt"
)

// Feature bits of a network device, virtio 1.3 §5.1.3.
const (
	FeatureCSum      = 1 << 0  // VIRTIO_NET_F_CSUM
	FeatureGuestCSum = 1 << 1  // VIRTIO_NET_F_GUEST_CSUM
	FeatureMTU       = 1 << 3  // VIRTIO_NET_F_MTU
	FeatureMAC       = 1 << 5  // VIRTIO_NET_F_MAC
	FeatureGuestTSO4 = 1 << 7  // VIRTIO_NET_F_GUEST_TSO4
	FeatureGuestTSO6 = 1 << 8  // VIRTIO_NET_F_GUEST_TSO6
	FeatureGuestECN  = 1 << 9  // VIRTIO_NET_F_GUEST_ECN
	FeatureHostTSO4  = 1 << 11 // VIRTIO_NET_F_HOST_TSO4
	FeatureHostTSO6  = 1 << 12 // VIRTIO_NET_F_HOST_TSO6
	FeatureHostECN   = 1 << 13 // VIRTIO_NET_F_HOST_ECN
	FeatureMergeRX   = 1 << 15 // VIRTIO_NET_F_MRG_RXBUF
	FeatureStatus    = 1 << 16 // VIRTIO_NET_F_STATUS
)

// receiveOffloads is what a driver must take when the tap has offloads: the
// host then hands over frames that need each of them.
const receiveOffloads = FeatureGuestCSum | FeatureGuestTSO4 | FeatureGuestTSO6 | FeatureGuestECN

// sendOffloads is what a driver may use when the tap has offloads.
const sendOffloads = FeatureCSum | FeatureHostTSO4 | FeatureHostTSO6 | FeatureHostECN

// Configuration space, virtio 1.3 §5.1.4.
const (
	configMAC    = 0
	configStatus = 6
	configMTU    = 10
	configSize   = 12

	statusLinkUp = 1 // VIRTIO_NET_S_LINK_UP
)

// MTU bounds, in bytes: virtio 1.3 §5.1.4.1, and the largest of a tap.
const (
	minMTU = 68
	maxMTU = 65521
)

// Options is what the host chooses for a device. All of it lasts: a saved
// device can be restored only with the same.
type Options struct {
	// MAC is the guest's address: unicast, not zero.
	MAC [6]byte
	// MTU is told to the driver when it is not zero, in bytes.
	MTU uint16
	// Offload says that the tap was opened with offloads (tap.Config), so
	// that checksums and segmentation are left to whoever gets the frame.
	Offload bool
}

func (o Options) check() error {
	switch {
	case o.MAC == [6]byte{} || o.MAC[0]&1 != 0:
		return fmt.Errorf("address %x is not unicast", o.MAC)
	case o.MTU != 0 && (o.MTU < minMTU || o.MTU > maxMTU):
		return fmt.Errorf("MTU %d is not between %d and %d", o.MTU, minMTU, maxMTU)
	}
	return nil
}

// features are the bits that are offered.
func (o Options) features() uint64 {
	f := uint64(FeatureMAC | FeatureMergeRX | FeatureStatus)
	if o.MTU != 0 {
		f |= FeatureMTU
	}
	if o.Offload {
		f |= receiveOffloads | sendOffloads
	}
	return f
}

// config is the configuration space.
func (o Options) config(linkUp bool) []byte {
	p := make([]byte, configSize)
	copy(p[configMAC:], o.MAC[:])
	if linkUp {
		binary.LittleEndian.PutUint16(p[configStatus:], statusLinkUp)
	}
	binary.LittleEndian.PutUint16(p[configMTU:], o.MTU)
	return p
}
