package rng

// The device has neither features of its own nor a configuration space
// (virtio 1.3 §5.4.3, §5.4.4).

// Features implements virtio.Device.
func (d *Device) Features() uint64 { return 0 }

// QueueSizes implements virtio.Device.
func (d *Device) QueueSizes() []uint16 { return []uint16{queueSize} }

// Config implements virtio.Device.
func (d *Device) Config() []byte { return nil }

// WriteConfig implements virtio.Device.
func (d *Device) WriteConfig(uint32, []byte) {}
