package balloon

import "encoding/binary"

// Feature bits of a balloon, virtio 1.3 §5.5.3. VIRTIO_BALLOON_F_FREE_PAGE_HINT
// is for live migration and VIRTIO_BALLOON_F_PAGE_POISON for drivers that
// need their pages back as they were; neither is offered. A Linux guest that
// poisons its free pages then does not report them.
const (
	FeatureStats        = 1 << 1 // VIRTIO_BALLOON_F_STATS_VQ
	FeatureDeflateOnOOM = 1 << 2 // VIRTIO_BALLOON_F_DEFLATE_ON_OOM
	FeatureReporting    = 1 << 5 // VIRTIO_BALLOON_F_PAGE_REPORTING
)

const features = FeatureStats | FeatureDeflateOnOOM | FeatureReporting

// Configuration space, virtio 1.3 §5.5.4: the two fields that exist with
// these features, both in pages.
const (
	configTarget = 0 // num_pages, ours
	configActual = 4 // actual, the driver's
	configSize   = 8
)

// pageSize is the balloon's unit in bytes, whatever the guest's page size is
// (virtio 1.3 §5.5.6). pagesPerMiB follows.
const (
	pageSize    = 4096
	pagesPerMiB = 1 << 20 / pageSize
)

// config is the configuration space.
type config [configSize]byte

func (c *config) target() uint32     { return binary.LittleEndian.Uint32(c[configTarget:]) }
func (c *config) setTarget(v uint32) { binary.LittleEndian.PutUint32(c[configTarget:], v) }
func (c *config) actual() uint32     { return binary.LittleEndian.Uint32(c[configActual:]) }
func (c *config) setActual(v uint32) { binary.LittleEndian.PutUint32(c[configActual:], v) }

// write is the driver's: only the bytes of actual change. From the guest: any
// offset, any length.
func (c *config) write(offset uint32, p []byte) {
	for i, b := range p {
		if at := uint64(offset) + uint64(i); at >= configActual && at < configSize {
			c[at] = b
		}
	}
}
