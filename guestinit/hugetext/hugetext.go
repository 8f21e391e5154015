// Package hugetext puts the code and constants of the programs that run in the guest on
// huge pages: of the agent itself, and of interpreters that wait. It runs as root, before
// a machine is saved as a template.
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
	"errors"
	"fmt"
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
// have used, and returns how many blocks are mapped so. What a kernel does not give is
// logged, and stays as it was.
func Collapse(log func(format string, args ...any)) int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		log("hugetext: %v", err)
	}
	total := 0
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		n, err := collapseProcess(pid)
		if err != nil {
			log("hugetext: process %d: %v", pid, err)
		}
		total += n
	}
	return total
}

// collapseProcess does it for one process, which may be frozen. The error is of the
// first block that could not be had.
func collapseProcess(pid int) (n int, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, nil // it has just ended
	}
	if err != nil {
		return 0, err
	}
	maps, err := parse(string(raw))
	if err != nil {
		return 0, err
	}
	self := pid == os.Getpid()
	all := blocks(maps, self)
	if len(all) == 0 {
		return 0, nil
	}
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return 0, err
	}
	defer pagemap.Close()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, fmt.Errorf("open process: %w", err)
	}
	defer unix.Close(fd)
	for _, b := range all {
		used, failed := present(pagemap, b.at)
		if failed == nil && used < least {
			continue
		}
		if failed == nil && b.joined {
			failed = mapWhole(b)
		}
		if failed == nil {
			failed = collapse(fd, b.at)
		}
		if failed == nil {
			n++
		} else if err == nil {
			err = fmt.Errorf("block %#x with %d pages: %w", b.at, used, failed)
		}
	}
	return n, err
}

// present counts the pages of the block at an address that are mapped.
func present(pagemap *os.File, at uint64) (int, error) {
	raw := make([]byte, hugeSize/pageSize*8)
	if _, err := pagemap.ReadAt(raw, int64(at/pageSize*8)); err != nil {
		return 0, fmt.Errorf("read page map: %w", err)
	}
	n := 0
	for entry := range slices.Chunk(raw, 8) {
		n += int(entry[7] >> 7) // bit 63
	}
	return n, nil
}

// mapWhole makes a block of this process's own program one mapping, over those that are
// there: the same bytes of the same file, in one step, so code that runs does not notice.
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
