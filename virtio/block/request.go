package block

import (
	"encoding/binary"
	"fmt"

	"thaw/virtio/block/disk"
	"thaw/virtio/queue"
)

// Request types and what a device answers (virtio 1.3 §5.2.6).
const (
	typeIn          = 0
	typeOut         = 1
	typeFlush       = 4
	typeGetID       = 8
	typeDiscard     = 11
	typeWriteZeroes = 13

	statusOK          = 0
	statusIOError     = 1
	statusUnsupported = 2

	headerLen = 16
	statusLen = 1
	rangeLen  = 16

	flagUnmap = 1 // VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP
)

// request is one chain in work. It is used again for another when answered.
//
//	driver to device   header (type, reserved, sector) │ data of OUT, ranges
//	device to driver   data of IN, id                  │ status, the last byte
//
// Where a part begins and ends has nothing to do with the buffers that carry
// it (virtio 1.3 §2.7.4).
type request struct {
	chain  queue.Chain
	kind   uint32
	sector uint64
	out    queue.Cursor // what the driver sent behind the header
	in     queue.Cursor // what it wants filled, without the status
	status queue.Cursor // at the status byte
	data   disk.Vector
	offset int64 // on the disk, of IN and OUT
}

// parse copies the header and finds the parts of a chain. A chain that has no
// place for a header or a status cannot even be answered: the error wraps
// queue.ErrGuest.
func (r *request) parse() error {
	if r.chain.ReadLen() < headerLen || r.chain.WriteLen() < statusLen {
		return fmt.Errorf("block: request of %d bytes to read and %d to write: %w", r.chain.ReadLen(), r.chain.WriteLen(), queue.ErrGuest)
	}
	var header [headerLen]byte
	r.out = r.chain.Reader()
	if _, err := r.out.Read(header[:]); err != nil {
		return fmt.Errorf("block: read header: %w", err)
	}
	r.kind = binary.LittleEndian.Uint32(header[0:])
	r.sector = binary.LittleEndian.Uint64(header[8:])
	r.status = r.chain.Writer()
	r.in = r.status.Split(r.status.Len() - statusLen)
	return nil
}

// transfer prepares the data of an IN or OUT request, which is what c walks
// over; false means that the length or the place on a disk of size bytes is
// wrong.
func (r *request) transfer(c queue.Cursor, size int64, bufs [][]byte) ([][]byte, bool) {
	n := int64(c.Len())
	if n%disk.SectorSize != 0 || !fits(r.sector, n/disk.SectorSize, size) {
		return bufs, false
	}
	r.offset = int64(r.sector) * disk.SectorSize
	bufs = c.Slices(bufs[:0], c.Len())
	r.data.Reset()
	for _, b := range bufs {
		r.data.Add(b)
	}
	return bufs, true
}

// fits says whether n sectors from sector on are on a disk of size bytes.
func fits(sector uint64, n, size int64) bool {
	capacity := uint64(size / disk.SectorSize)
	return sector <= capacity && uint64(n) <= capacity-sector
}

// span is a checked range of a discard, in bytes.
type span struct{ offset, length int64 }

// ranges copies and checks the ranges of a DISCARD or WRITE_ZEROES request
// (virtio 1.3 §5.2.6.2).
func (r *request) ranges(size int64, dst *[maxRanges]span) ([]span, byte) {
	n := r.out.Len()
	if n == 0 || n%rangeLen != 0 || n > maxRanges*rangeLen {
		return nil, statusIOError
	}
	c := r.out
	spans := dst[:0]
	for c.Len() > 0 {
		var raw [rangeLen]byte
		if _, err := c.Read(raw[:]); err != nil {
			return nil, statusIOError
		}
		sector := binary.LittleEndian.Uint64(raw[0:])
		sectors := int64(binary.LittleEndian.Uint32(raw[8:]))
		flags := binary.LittleEndian.Uint32(raw[12:])
		if flags&^flagUnmap != 0 || (flags != 0 && r.kind == typeDiscard) {
			return nil, statusUnsupported
		}
		if sectors > maxRangeSectors || !fits(sector, sectors, size) {
			return nil, statusIOError
		}
		spans = append(spans, span{int64(sector) * disk.SectorSize, sectors * disk.SectorSize})
	}
	return spans, statusOK
}

// zeroes says whether the request is about whole ranges, whatever its length.
func (r *request) zeroes() bool { return r.kind == typeDiscard || r.kind == typeWriteZeroes }

// setStatus writes the status byte.
func (r *request) setStatus(status byte) {
	b := [statusLen]byte{status}
	_, _ = r.status.Write(b[:]) // parse made sure that there is room
}
