package boot

import (
	"encoding/binary"
	"fmt"

	"thaw/internal/guestmem"
)

// ELF64 header and program header fields, System V ABI chapter 4 and 5.
const (
	elfHeaderSize  = 64
	elfClass64     = 2
	elfLittle      = 1
	elfMachineX86  = 62
	elfTypeExec    = 2
	progHeaderSize = 56
	progLoad       = 1
	maxProgHeaders = 64
)

// loadELF loads the segments of a vmlinux at their physical addresses.
func loadELF(mem *guestmem.Memory, kernel File) (image, error) {
	bad := func(format string, args ...any) (image, error) {
		return image{}, fmt.Errorf("boot: elf kernel: "+format+": %w", append(args, ErrBadKernel)...)
	}
	var h [elfHeaderSize]byte
	if err := kernel.read(h[:], 0); err != nil {
		return bad("read header: %w", err)
	}
	le := binary.LittleEndian
	if h[4] != elfClass64 || h[5] != elfLittle || le.Uint16(h[18:]) != elfMachineX86 {
		return bad("class %d, machine %d: not for x86-64", h[4], le.Uint16(h[18:]))
	}
	if le.Uint16(h[16:]) != elfTypeExec {
		return bad("type %d is not an executable", le.Uint16(h[16:]))
	}
	entry, table := le.Uint64(h[24:]), le.Uint64(h[32:])
	count := int(le.Uint16(h[56:]))
	if le.Uint16(h[54:]) != progHeaderSize || count == 0 || count > maxProgHeaders || table > uint64(kernel.Size) {
		return bad("%d program headers of %d bytes at %d", count, le.Uint16(h[54:]), table)
	}
	headers := make([]byte, count*progHeaderSize)
	if err := kernel.read(headers, int64(table)); err != nil {
		return bad("read program headers: %w", err)
	}
	low := mem.Regions()[0].Size
	img := image{entry: entry}
	started := false
	for ; len(headers) > 0; headers = headers[progHeaderSize:] {
		if le.Uint32(headers) != progLoad {
			continue
		}
		offset, addr := le.Uint64(headers[8:]), le.Uint64(headers[24:])
		inFile, inMemory := le.Uint64(headers[32:]), le.Uint64(headers[40:])
		if inFile > inMemory || addr < highMemory || addr+inMemory < addr {
			return bad("segment of %d bytes at %#x, %d in the file", inMemory, addr, inFile)
		}
		if addr+inMemory > low {
			return image{}, fmt.Errorf("boot: kernel segment ends at %d MiB, guest has %d: %w", (addr+inMemory)>>20, low>>20, ErrMemoryTooSmall)
		}
		// The memory is new, hence zero: what exceeds the file needs no work.
		if err := kernel.load(mem, addr, offset, inFile); err != nil {
			return bad("load segment at %#x: %w", addr, err)
		}
		img.end = max(img.end, addr+inMemory)
		started = started || entry >= addr && entry < addr+inFile
	}
	if !started {
		return bad("entry point %#x is in no segment", entry)
	}
	return img, nil
}
