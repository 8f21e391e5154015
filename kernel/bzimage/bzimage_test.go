package bzimage

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

const testLimit = 1 << 20

// fakeELF is an ELF header of x86-64 with size bytes in all.
func fakeELF(size int) []byte {
	b := bytes.Repeat([]byte("kernel text "), size/12+1)[:size]
	copy(b, elf.ELFMAG)
	b[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	b[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	binary.LittleEndian.PutUint16(b[18:], uint16(elf.EM_X86_64))
	return b
}

func gzipped(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstdSized(t testing.TB, b []byte, size uint32) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return binary.LittleEndian.AppendUint32(w.EncodeAll(b, nil), size)
}

// image puts payload into a boot image with two setup sectors.
func image(payload []byte) []byte {
	const sectors, gap = 2, 0x2cc
	b := make([]byte, (sectors+1)*sectorSize+gap)
	b[offSetupSects] = sectors
	le := binary.LittleEndian
	le.PutUint16(b[offBootFlag:], bootFlag)
	copy(b[offMagic:], "HdrS")
	le.PutUint16(b[offVersion:], 0x020f)
	le.PutUint32(b[offPayloadOffset:], gap)
	le.PutUint32(b[offPayloadLength:], uint32(len(payload)))
	return append(append(b, payload...), "trailer"...)
}

func TestExtract(t *testing.T) {
	kernel := fakeELF(100_000)
	for name, payload := range map[string][]byte{
		"gzip": gzipped(t, kernel),
		"zstd": zstdSized(t, kernel, uint32(len(kernel))),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Extract(image(payload), testLimit)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, kernel) {
				t.Error("the kernel came out changed")
			}
		})
	}
}

func TestSetupSectorsDefault(t *testing.T) {
	payload := gzipped(t, fakeELF(64))
	b := make([]byte, (defaultSectors+1)*sectorSize)
	copy(b, image(payload)[:headerEnd])
	b[offSetupSects] = 0
	binary.LittleEndian.PutUint32(b[offPayloadOffset:], 0)
	if _, err := Extract(append(b, payload...), testLimit); err != nil {
		t.Error(err)
	}
}

func TestBadImages(t *testing.T) {
	kernel := fakeELF(10_000)
	good := image(zstdSized(t, kernel, uint32(len(kernel))))
	le := binary.LittleEndian
	// changed returns the good image after change.
	changed := func(change func(b []byte)) []byte {
		b := bytes.Clone(good)
		change(b)
		return b
	}
	bitELF := fakeELF(64)
	bitELF[elf.EI_CLASS] = byte(elf.ELFCLASS32)
	arm := fakeELF(64)
	le.PutUint16(arm[18:], uint16(elf.EM_AARCH64))

	for _, c := range []struct {
		name string
		img  []byte
		want string
	}{
		{"empty", nil, "too few"},
		{"header only in part", good[:0x240], "too few"},
		{"no boot flag", changed(func(b []byte) { b[offBootFlag] = 0 }), "no Linux boot header"},
		{"no magic", changed(func(b []byte) { b[offMagic] = 'h' }), "no Linux boot header"},
		{"old protocol", changed(func(b []byte) { le.PutUint16(b[offVersion:], 0x0207) }), "protocol 2.07"},
		{"no payload", changed(func(b []byte) { le.PutUint32(b[offPayloadLength:], 0) }), "outside the image"},
		{"payload beyond the end", changed(func(b []byte) { le.PutUint32(b[offPayloadLength:], 1<<31) }), "outside the image"},
		{"offset beyond the end", changed(func(b []byte) { le.PutUint32(b[offPayloadOffset:], ^uint32(0)) }), "outside the image"},
		{"truncated", good[:len(good)/2], "truncated"},
		{"not ELF", image(gzipped(t, []byte("text"))), "not an ELF file"},
		{"32 bits", image(gzipped(t, bitELF)), "not 64-bit x86"},
		{"another architecture", image(gzipped(t, arm)), "not 64-bit x86"},
		{"too large by its own word", image(zstdSized(t, kernel, testLimit+1)), "more than"},
		{"larger than it says", image(zstdSized(t, kernel, 9_999)), "not the 9999 promised"},
		{"smaller than it says", image(zstdSized(t, kernel, 10_001)), "not the 10001 promised"},
		{"gzip bomb", image(gzipped(t, make([]byte, testLimit+1))), "more than"},
		{"gzip cut off", image(gzipped(t, kernel)[:20]), "decompress gzip"},
		{"zstd of four bytes", image([]byte("\x28\xb5\x2f\xfd")), "too short"},
		{"xz", image([]byte("\xfd7zXZ\x00rest")), "compressed with xz"},
		{"unknown", image([]byte("what is this")), "unknown compression"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Extract(c.img, testLimit)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func FuzzExtract(f *testing.F) {
	kernel := fakeELF(300)
	f.Add(image(gzipped(f, kernel)))
	f.Add(image(zstdSized(f, kernel, 300)))
	f.Add(image([]byte("\xfd7zXZ\x00")))
	f.Add([]byte("HdrS"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 64 << 10
		out, err := Extract(b, limit)
		if err == nil && (len(out) > limit || !bytes.HasPrefix(out, []byte(elf.ELFMAG))) {
			t.Errorf("%d bytes came out without an error", len(out))
		}
	})
}
