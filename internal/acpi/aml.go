package acpi

import "encoding/binary"

// A small part of the ACPI Machine Language, ACPI 6.5 §20.2: just what
// describes this machine's devices. Each function returns encoded bytes.

const (
	opZero    = 0x00
	opOne     = 0x01
	opName    = 0x08
	opByte    = 0x0a
	opWord    = 0x0b
	opDWord   = 0x0c
	opString  = 0x0d
	opQWord   = 0x0e
	opScope   = 0x10
	opBuffer  = 0x11
	opPackage = 0x12
	opMethod  = 0x14
	opExt     = 0x5b
	opDevice  = 0x82 // behind opExt
	opNotify  = 0x86
)

// pkgLength prefixes body with its length, which counts the prefix too
// (§20.2.4).
func pkgLength(body []byte) []byte {
	n := len(body)
	switch {
	case n+1 < 1<<6:
		return append([]byte{byte(n + 1)}, body...)
	case n+2 < 1<<12:
		n += 2
		return append([]byte{1<<6 | byte(n&0xf), byte(n >> 4)}, body...)
	default:
		n += 3
		return append([]byte{2<<6 | byte(n&0xf), byte(n >> 4), byte(n >> 12)}, body...)
	}
}

func join(parts ...[]byte) []byte {
	var out []byte
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// segment encodes one name of up to four characters (§20.2.2).
func segment(name string) []byte {
	return []byte((name + "____")[:4])
}

func scope(path string, terms ...[]byte) []byte {
	return append([]byte{opScope}, pkgLength(join(append([][]byte{append([]byte{'\\'}, segment(path)...)}, terms...)...))...)
}

func device(name string, terms ...[]byte) []byte {
	return append([]byte{opExt, opDevice}, pkgLength(join(append([][]byte{segment(name)}, terms...)...))...)
}

func name(n string, value []byte) []byte {
	return join([]byte{opName}, segment(n), value)
}

// method with one argument, not serialised.
func method1(n string, terms ...[]byte) []byte {
	return append([]byte{opMethod}, pkgLength(join(append([][]byte{segment(n), {1}}, terms...)...))...)
}

func notify(n string, value uint64) []byte {
	return join([]byte{opNotify}, segment(n), integer(value))
}

func integer(v uint64) []byte {
	switch {
	case v == 0:
		return []byte{opZero}
	case v == 1:
		return []byte{opOne}
	case v <= 0xff:
		return []byte{opByte, byte(v)}
	case v <= 0xffff:
		return binary.LittleEndian.AppendUint16([]byte{opWord}, uint16(v))
	case v <= 0xffff_ffff:
		return binary.LittleEndian.AppendUint32([]byte{opDWord}, uint32(v))
	default:
		return binary.LittleEndian.AppendUint64([]byte{opQWord}, v)
	}
}

func str(s string) []byte {
	return append(append([]byte{opString}, s...), 0)
}

func pkg(elements ...[]byte) []byte {
	return append([]byte{opPackage}, pkgLength(append([]byte{byte(len(elements))}, join(elements...)...))...)
}

func buffer(b []byte) []byte {
	return append([]byte{opBuffer}, pkgLength(append(integer(uint64(len(b))), b...))...)
}

// eisaID encodes an id like "PNP0501" (§19.3.4).
func eisaID(id string) []byte {
	hex := func(c byte) uint32 {
		if c <= '9' {
			return uint32(c - '0')
		}
		return uint32(c - 'A' + 10)
	}
	v := uint32(id[0]-0x40)<<26 | uint32(id[1]-0x40)<<21 | uint32(id[2]-0x40)<<16 |
		hex(id[3])<<12 | hex(id[4])<<8 | hex(id[5])<<4 | hex(id[6])
	var swapped [4]byte
	binary.BigEndian.PutUint32(swapped[:], v)
	return append([]byte{opDWord}, swapped[:]...)
}

// resources is a _CRS: descriptors and the end tag (§6.4).
func resources(descriptors ...[]byte) []byte {
	return name("_CRS", buffer(append(join(descriptors...), 0x79, 0)))
}

// memory32 is a fixed range of addresses (§6.4.3.4).
func memory32(base, length uint32) []byte {
	b := []byte{0x86, 9, 0, 1}
	b = binary.LittleEndian.AppendUint32(b, base)
	return binary.LittleEndian.AppendUint32(b, length)
}

// ports is a fixed range of I/O ports (§6.4.2.5).
func ports(base uint16, length uint8) []byte {
	b := []byte{0x47, 1}
	b = binary.LittleEndian.AppendUint16(b, base)
	b = binary.LittleEndian.AppendUint16(b, base)
	return append(b, 1, length)
}

// interrupt is a consumed, edge-triggered, active-high line (§6.4.3.6).
func interrupt(gsi uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{0x89, 6, 0, 1<<1 | 1, 1}, gsi)
}
