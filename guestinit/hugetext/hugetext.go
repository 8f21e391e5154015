// Package hugetext puts the code and constants of the programs that run in the guest on
// huge pages: of the agent itself, and of every other process there is when a machine is
// about to be saved as a template, which are the interpreters that wait. It runs as root.
//
// Where the hypervisor shadows the guest's page tables, each page that a restored machine
// touches first costs a fault, and 700 of those are code and constants. Of a huge page
// of the guest that lies on one of the template's memory, one fault brings all 512.
//
// The kernel maps a huge page of a file where address and offset agree and one mapping
// covers all of it. Node is linked for that; Python joins its mappings itself (see
// guestinit/warm), and so does the agent, whose data are linked to lie elsewhere (the
// Makefile). Constants that share a block with code can be executed then.
package hugetext

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	pageSize = 4 << 10
	hugeSize = 2 << 20
	// least is how many of a block's 512 pages a process must have mapped for it to be
	// worth the memory.
	least = 128
)

// Collapse makes huge pages of the blocks of 2 MiB of code and constants that processes
// have used. What a kernel does not give is logged, and stays as it was.
func Collapse(log func(format string, args ...any)) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		log("hugetext: %v", err)
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if err := collapseProcess(pid); err != nil {
			log("hugetext: process %d: %v", pid, err)
		}
	}
}

// collapseProcess does it for one process, which may be frozen. The error is of the
// first block that could not be had.
func collapseProcess(pid int) error {
	raw, err := readMaps(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil // it has just ended
	}
	if err != nil {
		return err
	}
	maps, err := parse(string(raw))
	if err != nil {
		return err
	}
	return collapseBlocks(pid, blocks(maps, pid == os.Getpid()))
}

// readMaps reads the list of a process's mappings, of which it may have very many.
func readMaps(pid int) ([]byte, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxMaps+1))
	if err == nil && len(raw) > maxMaps {
		err = fmt.Errorf("more than %d bytes of mappings", maxMaps)
	}
	return raw, err
}

// collapseBlocks does it for those blocks of a process that are worth it and hold nothing
// but the file. Joined ones have to be of this process's own program.
func collapseBlocks(pid int, all []block) error {
	if len(all) == 0 {
		return nil
	}
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return err
	}
	defer pagemap.Close()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process: %w", err)
	}
	defer unix.Close(fd)
	for _, b := range all {
		used, own, failed := present(pagemap, b.at)
		if failed == nil && (own || used < least) {
			continue
		}
		if failed == nil && b.joined {
			failed = mapWhole(b)
		}
		if failed == nil {
			failed = collapse(fd, b.at)
		}
		if failed != nil && err == nil {
			err = fmt.Errorf("block %#x with %d pages: %w", b.at, used, failed)
		}
	}
	return err
}

// present counts the pages of the block at an address that are mapped, and says whether the
// process has any of its own: what a loader has written before it protected it (RELRO) looks
// constant in maps, and is not what the file has there.
func present(pagemap *os.File, at uint64) (n int, own bool, err error) {
	const (
		mapped, swapped = 1 << 63, 1 << 62
		ofFile          = 1 << 61 // or of shared memory
	)
	raw := make([]byte, hugeSize/pageSize*8)
	if _, err := pagemap.ReadAt(raw, int64(at/pageSize*8)); err != nil {
		return 0, false, fmt.Errorf("read page map: %w", err)
	}
	for b := range slices.Chunk(raw, 8) {
		entry := binary.NativeEndian.Uint64(b)
		if entry&mapped != 0 {
			n++
		}
		own = own || entry&(mapped|swapped) != 0 && entry&ofFile == 0
	}
	return n, own, nil
}

// mapWhole makes a block of this process's own program one mapping, over those that are
// there: the same bytes of the same file, in one step, so code that runs does not notice.
// Preconditions: the process has no page of its own there (present).
func mapWhole(b block) error {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer exe.Close()
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(b.at), hugeSize, uintptr(b.prot), unix.MAP_PRIVATE|unix.MAP_FIXED, exe.Fd(), uintptr(b.offset))
	if errno != 0 {
		return fmt.Errorf("map a block of the program again: %w", errno)
	}
	return nil
}
