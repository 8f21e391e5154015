package boot

import (
	"encoding/binary"

	"thaw/internal/guestmem"
)

// Fields of struct boot_params, Documentation/arch/x86/zero-page.rst.
const (
	paramsSize     = 4096
	offRSDP        = 0x070
	offE820Entries = 0x1e8
	offE820Table   = 0x2d0
	e820EntrySize  = 20
	e820RAM        = 1
	e820Reserved   = 2
)

// params fills the zero page.
func params(mem *guestmem.Memory, kernel image, initrd span, cmdline int) []byte {
	p := make([]byte, paramsSize)
	le := binary.LittleEndian
	copy(p[offSetupSects:], kernel.setup)
	le.PutUint64(p[offRSDP:], TablesAddress)
	le.PutUint16(p[offBootFlag:], bootFlag)
	copy(p[offHeaderMagic:], headerMagic)
	if kernel.setup == nil {
		le.PutUint16(p[offProtocol:], minProtocol)
		le.PutUint32(p[offAlignment:], 0x100_0000)
	}
	p[offLoaderType] = loaderUndefined
	le.PutUint32(p[offCmdline:], cmdlineAddress)
	le.PutUint32(p[offCmdlineSize:], uint32(cmdline))
	le.PutUint32(p[offRamdisk:], uint32(initrd.addr))
	le.PutUint32(p[offRamdiskSize:], uint32(initrd.size))

	n := 0
	e820 := func(base, size uint64, kind uint32) {
		e := p[offE820Table+n*e820EntrySize:]
		le.PutUint64(e, base)
		le.PutUint64(e[8:], size)
		le.PutUint32(e[16:], kind)
		n++
	}
	e820(0, lowMemoryEnd, e820RAM)
	e820(TablesAddress, highMemory-TablesAddress, e820Reserved)
	for i, r := range mem.Regions() {
		if i == 0 {
			e820(highMemory, r.Size-highMemory, e820RAM)
		} else {
			e820(r.Base, r.Size, e820RAM)
		}
	}
	p[offE820Entries] = byte(n)
	return p
}
