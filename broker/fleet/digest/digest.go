// Package digest tells by Files what the state of a machine depends on: files, and
// what KVM offers guests.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"thaw/internal/kvm"
)

// Files remembers the digests of files by what says that they have not changed.
type Files struct {
	mu     sync.Mutex
	byFile map[string]string // protected by mu
}

// Open returns the SHA-256 of the file that open opens.
func (d *Files) Open(open func() (*os.File, error)) (string, error) {
	f, err := open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	return d.Of(f)
}

// Of returns the SHA-256 of a file.
func (d *Files) Of(f *os.File) (string, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return "", fmt.Errorf("digest: stat: %w", err)
	}
	key := fmt.Sprintf("%d %d %d %d %d", st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	d.mu.Lock()
	defer d.mu.Unlock()
	if sum, ok := d.byFile[key]; ok {
		return sum, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, st.Size)); err != nil {
		return "", fmt.Errorf("digest: digest: %w", err)
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if d.byFile == nil {
		d.byFile = map[string]string{}
	}
	d.byFile[key] = sum
	return sum, nil
}

// CPUID leaves that differ between the CPUs of one host (Intel SDM volume 2, "CPUID";
// AMD APM volume 3, appendix E): topology, and in leaf 1 the APIC id.
var perCPU = []uint32{0xb, 0x1f, 0x8000_001e, 0x8000_0026}

const (
	leafFeatures = 1
	apicID       = 0xff00_0000 // of ebx in leaf 1
)

// CPU is the digest of what KVM offers guests on this host: CPUID and MSRs.
func CPU(dev *os.File) (string, error) {
	system, err := kvm.Open(dev)
	if err != nil {
		return "", fmt.Errorf("digest: open KVM: %w", err)
	}
	entries, err := system.SupportedCPUID()
	if err != nil {
		return "", fmt.Errorf("digest: read CPUID: %w", err)
	}
	msrs, err := system.MSRIndexList()
	if err != nil {
		return "", fmt.Errorf("digest: list MSRs: %w", err)
	}
	h := sha256.New()
	for _, e := range entries {
		if slices.Contains(perCPU, e.Function) {
			continue
		}
		if e.Function == leafFeatures {
			e.Ebx &^= apicID
		}
		numbers(h, e.Function, e.Index, e.Eax, e.Ebx, e.Ecx, e.Edx)
	}
	slices.Sort(msrs)
	numbers(h, msrs...)
	return hex.EncodeToString(h.Sum(nil)), nil
}

func numbers(h hash.Hash, list ...uint32) {
	for _, n := range list {
		fmt.Fprintf(h, "%x ", n)
	}
}
