// Package boot puts a Linux kernel into a guest's memory and says how the
// first processor must start: the 64-bit boot protocol (Linux
// Documentation/arch/x86/boot.rst, "64-bit Boot Protocol") for an ELF vmlinux
// or a bzImage.
//
// Guest physical memory below 1 MiB while booting:
//
//	0x0010   MP floating pointer without a table
//	0x0500   GDT
//	0x7000   boot_params ("zero page")
//	0x9000   page tables: PML4, PDPT, PD, identity for the first GiB
//	0x20000  command line
//	0xe0000  ACPI tables, then reserved up to 1 MiB
//
// Kernel and initramfs are files of the daemon's, but are read as if they were
// hostile: every offset and length in them is checked.
package boot

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"thaw/internal/guestmem"
)

// What a caller branches on.
var (
	ErrBadKernel      = errors.New("kernel image cannot be booted")
	ErrBadInitrd      = errors.New("initramfs cannot be used")
	ErrMemoryTooSmall = errors.New("guest memory is too small")
	ErrBadCmdline     = errors.New("kernel command line cannot be used")
)

// Guest physical addresses.
const (
	mpAddress      = 0x10
	gdtAddress     = 0x500
	paramsAddress  = 0x7000
	pageTables     = 0x9000
	cmdlineAddress = 0x20000
	cmdlineMax     = 2048 // COMMAND_LINE_SIZE of x86
	lowMemoryEnd   = 0x9fc00
	// TablesAddress is where the ACPI tables go, up to highMemory.
	TablesAddress = 0xe0000
	highMemory    = 0x100000
)

// minHeadroom is what must be left besides kernel and initramfs for a kernel
// to come up at all, in bytes.
const minHeadroom = 32 << 20

// File is an open file of known size.
type File struct {
	io.ReaderAt
	Size int64
}

// Config is what to boot.
type Config struct {
	Kernel  File
	Initrd  *File // nil: none
	Cmdline string
	Tables  []byte // ACPI tables built for TablesAddress
}

// Entry is how the first processor starts.
type Entry struct {
	RIP        uint64
	RSI        uint64 // address of boot_params
	PageTables uint64 // CR3
	GDT        uint64
}

// Load fills guest memory and returns where to start.
func Load(mem *guestmem.Memory, cfg Config) (Entry, error) {
	image, err := loadKernel(mem, cfg.Kernel)
	if err != nil {
		return Entry{}, err
	}
	initrd, err := loadInitrd(mem, cfg.Initrd, image)
	if err != nil {
		return Entry{}, err
	}
	if len(cfg.Cmdline) >= cmdlineMax {
		return Entry{}, fmt.Errorf("boot: command line of %d bytes, at most %d: %w", len(cfg.Cmdline), cmdlineMax-1, ErrBadCmdline)
	}
	if len(cfg.Tables) > highMemory-TablesAddress {
		return Entry{}, fmt.Errorf("boot: place %d bytes of acpi tables: too long", len(cfg.Tables))
	}
	for _, w := range []struct {
		at uint64
		b  []byte
	}{
		{cmdlineAddress, append([]byte(cfg.Cmdline), 0)},
		{TablesAddress, cfg.Tables},
		{paramsAddress, params(mem, image, initrd, len(cfg.Cmdline))},
		{pageTables, identityMap()},
		{gdtAddress, gdt()},
		{mpAddress, mpPointer()},
	} {
		if err := mem.WriteAt(w.b, w.at); err != nil {
			return Entry{}, fmt.Errorf("boot: set up low memory: %w: %w", err, ErrMemoryTooSmall)
		}
	}
	return Entry{RIP: image.entry, RSI: paramsAddress, PageTables: pageTables, GDT: gdtAddress}, nil
}

// image is a kernel that has been loaded.
type image struct {
	entry uint64
	end   uint64 // first address behind it, room for its bss included
	setup []byte // setup header of a bzImage, from offset 0x1f1; nil for ELF
}

// span is a range of guest memory.
type span struct{ addr, size uint64 }

// loadKernel tells the format by its magic.
func loadKernel(mem *guestmem.Memory, kernel File) (image, error) {
	var head [4]byte
	if err := kernel.read(head[:], 0); err != nil {
		return image{}, fmt.Errorf("boot: read kernel: %w: %w", err, ErrBadKernel)
	}
	if string(head[:]) == "\x7fELF" {
		return loadELF(mem, kernel)
	}
	return loadBzImage(mem, kernel)
}

// loadInitrd puts the initramfs at the top of the memory below 2 GiB, as high
// as every kernel takes it.
func loadInitrd(mem *guestmem.Memory, initrd *File, kernel image) (span, error) {
	low := mem.Regions()[0].Size
	need := kernel.end + minHeadroom
	if initrd == nil {
		if low < need {
			return span{}, fmt.Errorf("boot: kernel needs %d MiB, guest has %d: %w", need>>20, low>>20, ErrMemoryTooSmall)
		}
		return span{}, nil
	}
	if initrd.Size <= 0 {
		return span{}, fmt.Errorf("boot: initramfs is empty: %w", ErrBadInitrd)
	}
	size := uint64(initrd.Size)
	top := min(low, 0x7fff_f000)
	if size > top || top-size < need {
		return span{}, fmt.Errorf("boot: kernel and initramfs need %d MiB, guest has %d: %w", (need+size)>>20, low>>20, ErrMemoryTooSmall)
	}
	at := (top - size) &^ (guestmem.PageSize - 1)
	if err := initrd.load(mem, at, 0, size); err != nil {
		return span{}, fmt.Errorf("boot: read initramfs: %w: %w", err, ErrBadInitrd)
	}
	return span{at, size}, nil
}

// read fills p from offset; a file that ends before gives io.ErrUnexpectedEOF.
func (f File) read(p []byte, offset int64) error {
	n, err := f.ReadAt(p, offset)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// load copies size bytes at offset to guest memory.
func (f File) load(mem *guestmem.Memory, gpa, offset, size uint64) error {
	if offset > uint64(f.Size) || size > uint64(f.Size)-offset {
		return io.ErrUnexpectedEOF
	}
	return mem.Fill(gpa, f, int64(offset), size)
}

// identityMap maps the first GiB in pages of 2 MiB: PML4, PDPT, PD.
func identityMap() []byte {
	const (
		present, writable, huge = 1, 2, 0x80
		page                    = 4096
	)
	b := make([]byte, 3*page)
	binary.LittleEndian.PutUint64(b, pageTables+page|present|writable)
	binary.LittleEndian.PutUint64(b[page:], pageTables+2*page|present|writable)
	for i := range uint64(512) {
		binary.LittleEndian.PutUint64(b[2*page+i*8:], i<<21|present|writable|huge)
	}
	return b
}

// gdt has the segments that the boot protocol wants: code at selector 0x10,
// data at 0x18.
func gdt() []byte {
	var b []byte
	for _, d := range []uint64{0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff} {
		b = binary.LittleEndian.AppendUint64(b, d)
	}
	return b
}

// mpPointer is a floating pointer structure (Intel MultiProcessor
// Specification 1.4 §4.1) that points to no table. Linux looks for one before
// it has seen the ACPI tables, 16 bytes at a time through 65 KiB, and maps
// each: on a pvm host that takes over a second. It ends at the first one
// found, and goes by ACPI afterwards.
func mpPointer() []byte {
	b := make([]byte, 16)
	copy(b, "_MP_")
	b[8], b[9] = 1, 4 // paragraphs, revision
	for _, v := range b[:10] {
		b[10] -= v
	}
	return b
}

// NewGeneration writes a new VM generation id (VMGenID, 16 random bytes).
func NewGeneration(mem *guestmem.Memory, at uint64) error {
	var id [16]byte
	rand.Read(id[:]) // never fails, see crypto/rand
	return mem.WriteAt(id[:], at)
}
