// Package bzimage takes the ELF kernel out of a Linux x86 boot image.
//
// The image is read by the boot protocol alone (Documentation/arch/x86/boot.rst
// of the kernel): a setup header in the first sectors says where the compressed
// payload lies. Images are untrusted: every offset is checked against the file
// and the output has a bound that the caller gives.
package bzimage

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Offsets into the image, boot.rst "The Real-Mode Kernel Header".
const (
	offSetupSects    = 0x1f1 // u8, sectors after the first one; 0 means 4
	offBootFlag      = 0x1fe // u16
	offMagic         = 0x202 // "HdrS"
	offVersion       = 0x206 // u16, major << 8 | minor
	offPayloadOffset = 0x248 // u32, from the protected-mode code
	offPayloadLength = 0x24c // u32
	headerEnd        = 0x250

	bootFlag       = 0xaa55
	minVersion     = 0x0208 // the first with a payload offset
	sectorSize     = 512
	defaultSectors = 4
)

// Image is a checked view of a boot image's header.
type Image struct {
	// Version of the boot protocol, major << 8 | minor.
	Version uint16
	// Payload is the compressed kernel, with whatever trails it.
	Payload []byte
}

// Parse checks the setup header of image and finds the payload, which shares
// image's memory.
func Parse(image []byte) (*Image, error) {
	if len(image) < headerEnd {
		return nil, fmt.Errorf("bzimage: %d bytes are too few for a boot image", len(image))
	}
	le := binary.LittleEndian
	if le.Uint16(image[offBootFlag:]) != bootFlag || string(image[offMagic:offMagic+4]) != "HdrS" {
		return nil, errors.New("bzimage: no Linux boot header")
	}
	version := le.Uint16(image[offVersion:])
	if version < minVersion {
		return nil, fmt.Errorf("bzimage: boot protocol %d.%02d does not say where the payload is", version>>8, version&0xff)
	}
	sectors := uint64(image[offSetupSects])
	if sectors == 0 {
		sectors = defaultSectors
	}
	// 64-bit sums of 32-bit fields: they cannot overflow.
	start := (sectors+1)*sectorSize + uint64(le.Uint32(image[offPayloadOffset:]))
	length := uint64(le.Uint32(image[offPayloadLength:]))
	if length == 0 || start+length > uint64(len(image)) {
		return nil, fmt.Errorf("bzimage: payload of %d bytes at %d is outside the image of %d bytes (truncated?)", length, start, len(image))
	}
	return &Image{Version: version, Payload: image[start : start+length]}, nil
}

// Extract returns the ELF kernel inside image, at most limit bytes of it.
// Relocations that the build appended stay behind the ELF file's own bytes.
func Extract(image []byte, limit int64) ([]byte, error) {
	img, err := Parse(image)
	if err != nil {
		return nil, err
	}
	vmlinux, err := decompress(img.Payload, limit)
	if err != nil {
		return nil, err
	}
	return vmlinux, checkELF(vmlinux)
}

// Compression formats by their first bytes. Those without a reader are named so
// that the error can say what it met.
var formats = []struct {
	name, magic string
	// sized: the build appended the size of the output as four bytes
	// (scripts/Makefile.lib, size_append).
	sized bool
	open  func([]byte, int64) (io.ReadCloser, error)
}{
	{"gzip", "\x1f\x8b", false, openGzip},
	{"zstd", "\x28\xb5\x2f\xfd", true, openZstd},
	{"xz", "\xfd7zXZ\x00", true, nil},
	{"bzip2", "BZh", true, nil},
	{"lzma", "\x5d\x00\x00", true, nil},
	{"lzo", "\x89LZO", true, nil},
	{"lz4", "\x02\x21\x4c\x18", true, nil},
}

func decompress(payload []byte, limit int64) ([]byte, error) {
	for _, f := range formats {
		if !bytes.HasPrefix(payload, []byte(f.magic)) {
			continue
		}
		if f.open == nil {
			return nil, fmt.Errorf("bzimage: the payload is compressed with %s; only gzip and zstd are read", f.name)
		}
		want := int64(-1)
		if f.sized {
			body := len(payload) - 4
			if body < len(f.magic) {
				return nil, fmt.Errorf("bzimage: %s payload is too short", f.name)
			}
			want = int64(binary.LittleEndian.Uint32(payload[body:]))
			if want > limit {
				return nil, fmt.Errorf("bzimage: the kernel says it has %d bytes, more than the %d allowed", want, limit)
			}
			payload = payload[:body]
		}
		return inflate(f.name, f.open, payload, want, limit)
	}
	return nil, fmt.Errorf("bzimage: unknown compression, the payload begins with % x", payload[:min(6, len(payload))])
}

// inflate reads all of payload. want is the promised size, or negative.
func inflate(name string, open func([]byte, int64) (io.ReadCloser, error), payload []byte, want, limit int64) ([]byte, error) {
	r, err := open(payload, limit)
	if err != nil {
		return nil, fmt.Errorf("bzimage: open %s payload: %w", name, err)
	}
	defer r.Close()
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("bzimage: decompress %s payload: %w", name, err)
	case int64(len(out)) > limit:
		return nil, fmt.Errorf("bzimage: the kernel has more than the %d bytes allowed", limit)
	case want >= 0 && int64(len(out)) != want:
		return nil, fmt.Errorf("bzimage: the kernel has %d bytes, not the %d promised", len(out), want)
	}
	return out, nil
}

func openGzip(payload []byte, _ int64) (io.ReadCloser, error) {
	r, err := gzip.NewReader(bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	r.Multistream(false) // the payload may be padded
	return r, nil
}

func openZstd(payload []byte, limit int64) (io.ReadCloser, error) {
	// The window is the decoder's memory, and a hostile frame chooses it: it
	// needs no more than the output, save that the decoder has a least size.
	window := max(uint64(limit), zstd.MinWindowSize)
	d, err := zstd.NewReader(bytes.NewReader(payload),
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// checkELF makes sure that b is a 64-bit x86 executable, the one kind that is
// booted.
func checkELF(b []byte) error {
	const header = 64
	if len(b) < header || string(b[:4]) != elf.ELFMAG {
		return errors.New("bzimage: the payload is not an ELF file")
	}
	class, data := elf.Class(b[elf.EI_CLASS]), elf.Data(b[elf.EI_DATA])
	machine := elf.Machine(binary.LittleEndian.Uint16(b[18:]))
	if class != elf.ELFCLASS64 || data != elf.ELFDATA2LSB || machine != elf.EM_X86_64 {
		return fmt.Errorf("bzimage: the kernel is %v %v for %v, not 64-bit x86", class, data, machine)
	}
	return nil
}
