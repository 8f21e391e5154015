package block

import (
	"encoding/binary"

	"thaw/virtio/block/disk"
)

// Device feature bits (virtio 1.3 §5.2.3). No SIZE_MAX: a buffer may be as
// long as guest memory. No MQ: one worker keeps up with the guests here.
const (
	featureSegMax      = 1 << 2  // VIRTIO_BLK_F_SEG_MAX
	featureReadOnly    = 1 << 5  // VIRTIO_BLK_F_RO
	featureBlockSize   = 1 << 6  // VIRTIO_BLK_F_BLK_SIZE
	featureFlush       = 1 << 9  // VIRTIO_BLK_F_FLUSH
	featureTopology    = 1 << 10 // VIRTIO_BLK_F_TOPOLOGY
	featureDiscard     = 1 << 13 // VIRTIO_BLK_F_DISCARD
	featureWriteZeroes = 1 << 14 // VIRTIO_BLK_F_WRITE_ZEROES
)

const (
	// queueSize holds a request of 1 MiB in single pages.
	queueSize = 256
	// maxSegments leaves room for the header and the status.
	maxSegments = queueSize - 2
	// maxRanges is how many ranges one discard may name.
	maxRanges = 16
	// maxRangeSectors bounds one of them to 2 GiB.
	maxRangeSectors = 1 << 22
	// blockSectors is the physical block in sectors.
	blockSectors = disk.BlockSize / disk.SectorSize
	// idLen is the length of the device id (virtio 1.3 §5.2.6).
	idLen = 20
)

// Layout of the configuration space, virtio 1.3 §5.2.4.
const (
	configCapacity         = 0
	configSegMax           = 12
	configBlockSize        = 20
	configPhysicalExponent = 24
	configMinIO            = 26
	configOptIO            = 28
	configQueues           = 34
	configDiscardSectors   = 36
	configDiscardRanges    = 40
	configDiscardAlign     = 44
	configZeroSectors      = 48
	configZeroRanges       = 52
	configZeroMayUnmap     = 56
	configLen              = 60
)

// physicalExponent is the base 2 logarithm of blockSectors.
const physicalExponent = 3

func deviceFeatures(readOnly bool) uint64 {
	features := uint64(featureSegMax | featureBlockSize | featureTopology)
	if readOnly {
		return features | featureReadOnly
	}
	return features | featureFlush | featureDiscard | featureWriteZeroes
}

// encodeConfig makes the configuration space. The logical block is a sector,
// so that any file system can be mounted, those with blocks of 1 KiB included;
// the physical block tells it to keep to 4 KiB, where nothing is copied up.
func encodeConfig(d *disk.Disk) [configLen]byte {
	var c [configLen]byte
	le := binary.LittleEndian
	le.PutUint64(c[configCapacity:], uint64(d.Size()/disk.SectorSize))
	le.PutUint32(c[configSegMax:], maxSegments)
	le.PutUint32(c[configBlockSize:], disk.SectorSize)
	c[configPhysicalExponent] = physicalExponent
	le.PutUint16(c[configMinIO:], blockSectors)
	le.PutUint32(c[configOptIO:], 0)
	le.PutUint16(c[configQueues:], 1)
	if d.ReadOnly() {
		return c
	}
	le.PutUint32(c[configDiscardSectors:], maxRangeSectors)
	le.PutUint32(c[configDiscardRanges:], maxRanges)
	le.PutUint32(c[configDiscardAlign:], blockSectors)
	le.PutUint32(c[configZeroSectors:], maxRangeSectors)
	le.PutUint32(c[configZeroRanges:], maxRanges)
	c[configZeroMayUnmap] = 1
	return c
}
