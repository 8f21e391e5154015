package machine

import (
	"encoding/binary"
	"fmt"
	"os"
)

// TrivialLine is what the trivial init prints.
const TrivialLine = "thaw-bench: first line"

// WriteTrivialInit writes the least that can be an init: a static program that
// writes one line and sleeps for good. What is measured until its line is the
// machine's and the kernel's alone.
func WriteTrivialInit(path string) error {
	const (
		base   = 0x400000
		header = 64 + 56 // ELF header and one program header
	)
	text := TrivialLine + "\n"
	code := []byte{
		0xb8, 1, 0, 0, 0, // mov eax, 1 (write)
		0xbf, 1, 0, 0, 0, // mov edi, 1
		0x48, 0x8d, 0x35, 0, 0, 0, 0, // lea rsi, [rip + text]
		0xba, byte(len(text)), 0, 0, 0, // mov edx, length
		0x0f, 0x05, // syscall
		0xb8, 34, 0, 0, 0, // sleep: mov eax, 34 (pause)
		0x0f, 0x05, // syscall
		0xeb, 0xf7, // jmp sleep
	}
	const leaEnd = 17
	binary.LittleEndian.PutUint32(code[leaEnd-4:], uint32(len(code)-leaEnd))
	body := append(code, text...)

	// ELF-64, System V ABI chapter 4 and 5.
	file := make([]byte, header, header+len(body))
	copy(file, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(file[16:], 2)  // executable
	le.PutUint16(file[18:], 62) // x86-64
	le.PutUint32(file[20:], 1)
	le.PutUint64(file[24:], base+header) // entry
	le.PutUint64(file[32:], 64)          // program headers
	le.PutUint16(file[52:], 64)
	le.PutUint16(file[54:], 56)
	le.PutUint16(file[56:], 1)
	le.PutUint16(file[58:], 64)
	segment := file[64:header]
	le.PutUint32(segment, 1)     // load
	le.PutUint32(segment[4:], 5) // read, execute
	le.PutUint64(segment[16:], base)
	le.PutUint64(segment[24:], base)
	le.PutUint64(segment[32:], uint64(header+len(body)))
	le.PutUint64(segment[40:], uint64(header+len(body)))
	le.PutUint64(segment[48:], 0x1000)
	if err := os.WriteFile(path, append(file, body...), 0o755); err != nil {
		return fmt.Errorf("machine: write init: %w", err)
	}
	return nil
}
