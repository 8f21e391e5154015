package boot

import (
	"encoding/binary"
	"fmt"

	"thaw/internal/guestmem"
)

// Setup header of a bzImage, Documentation/arch/x86/boot.rst.
const (
	offSetupSects   = 0x1f1
	offBootFlag     = 0x1fe
	offJump         = 0x201 // its value is how far the header goes from 0x202
	offHeaderMagic  = 0x202
	offProtocol     = 0x206
	offLoaderType   = 0x210
	offLoadFlags    = 0x211
	offRamdisk      = 0x218
	offRamdiskSize  = 0x21c
	offCmdline      = 0x228
	offAlignment    = 0x230
	offRelocatable  = 0x234
	offXLoadFlags   = 0x236
	offCmdlineSize  = 0x238
	offPrefAddress  = 0x258
	offInitSize     = 0x260
	setupHeaderMax  = 0x280
	headerMagic     = "HdrS"
	bootFlag        = 0xaa55
	loadedHigh      = 1
	xlfKernel64     = 1
	entry64Offset   = 0x200
	minProtocol     = 0x020c // first with xloadflags
	loaderUndefined = 0xff
)

// loadBzImage loads the protected-mode part of a bzImage, which unpacks
// itself.
func loadBzImage(mem *guestmem.Memory, kernel File) (image, error) {
	bad := func(format string, args ...any) (image, error) {
		return image{}, fmt.Errorf("boot: bzimage kernel: "+format+": %w", append(args, ErrBadKernel)...)
	}
	h := make([]byte, setupHeaderMax)
	if err := kernel.read(h, 0); err != nil {
		return bad("read setup header: %w", err)
	}
	le := binary.LittleEndian
	if string(h[offHeaderMagic:offHeaderMagic+4]) != headerMagic || le.Uint16(h[offBootFlag:]) != bootFlag {
		return bad("neither ELF nor bzImage")
	}
	if v := le.Uint16(h[offProtocol:]); v < minProtocol {
		return bad("boot protocol %#x is too old", v)
	}
	if le.Uint16(h[offXLoadFlags:])&xlfKernel64 == 0 || h[offLoadFlags]&loadedHigh == 0 {
		return bad("no 64-bit entry point")
	}
	sects := uint64(h[offSetupSects])
	if sects == 0 {
		sects = 4 // §"The Real-Mode Kernel Header"
	}
	start := (sects + 1) * 512
	if start >= uint64(kernel.Size) {
		return bad("setup of %d sectors in a file of %d bytes", sects, kernel.Size)
	}
	size := uint64(kernel.Size) - start
	addr, room := le.Uint64(h[offPrefAddress:]), uint64(le.Uint32(h[offInitSize:]))
	room = max(room, size)
	if addr < highMemory || addr+room < addr {
		return bad("wants %d bytes at %#x", room, addr)
	}
	if low := mem.Regions()[0].Size; addr+room > low {
		return image{}, fmt.Errorf("boot: kernel ends at %d MiB, guest has %d: %w", (addr+room)>>20, low>>20, ErrMemoryTooSmall)
	}
	if err := kernel.load(mem, addr, start, size); err != nil {
		return bad("load: %w", err)
	}
	end := min(offHeaderMagic+int(h[offJump]), setupHeaderMax)
	return image{entry: addr + entry64Offset, end: addr + room, setup: h[offSetupSects:end]}, nil
}
