package dirty

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/internal/kvm"
	"thaw/internal/pagemap"
	"thaw/internal/uffd"
	"thaw/vmm/protect"
)

// Availability says whether a host has a tracker.
type Availability struct {
	Tracker Tracker
	About   string // one line for people
	// Err says what is missing, and wraps ErrTracker; nil: it can be used.
	Err error
}

// Host lists all trackers with their availability on this host, the cheapest for the
// guest first. It opens the devices itself, and so is for the daemon, as root: in a
// VMM's jail nothing is available.
func Host() []Availability {
	none := func() error { return nil }
	list := []struct {
		Availability
		check func() error
	}{
		{Availability{Tracker: Pagemap, About: "pages that are private to the process, from its page map; no cost to the guest"}, checkPagemap},
		{Availability{Tracker: LogKept, About: "KVM's dirty log, never cleared: what was written since the tracker was started"}, checkKVM(func(s *kvm.System) error {
			if !s.CanKeepDirtyLog() {
				return errors.New("kvm clears its log when it is read")
			}
			return nil
		})},
		{Availability{Tracker: Log, About: "KVM's dirty log: what was written since the last checkpoint"}, checkKVM(func(*kvm.System) error { return nil })},
		{Availability{Tracker: Ring, About: "KVM's dirty rings, for machines that were made with them"}, checkKVM(func(s *kvm.System) error {
			if limit := s.DirtyRingLimit(); limit < RingBytes {
				return fmt.Errorf("kvm offers rings of %d bytes", limit)
			}
			return nil
		})},
		{Availability{Tracker: UffdAsync, About: "pages that the kernel has let be written since they were write-protected"}, checkAsync},
		{Availability{Tracker: UffdSync, About: "the same with a process that is told of each first write, and can copy a page before it"}, checkSync},
		{Availability{Tracker: Full, About: "every page is compared: the reference"}, none},
	}
	out := make([]Availability, len(list))
	for i, a := range list {
		out[i] = a.Availability
		if err := a.check(); err != nil {
			out[i].Err = fmt.Errorf("dirty: tracker %s: %w: %w", a.Tracker, err, ErrTracker)
		}
	}
	return out
}

func checkKVM(check func(*kvm.System) error) func() error {
	return func() error {
		f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		system, err := kvm.Open(f)
		if err != nil {
			return err
		}
		return check(system)
	}
}

// checkPagemap scans a page of memory.
func checkPagemap() error {
	return withPage(func(page []byte, scan *pagemap.Scanner) error {
		_, err := scan.Private(page, nil)
		return err
	})
}

// checkAsync protects a page of memory.
func checkAsync() error {
	return withPage(func(page []byte, scan *pagemap.Scanner) error {
		device, err := os.OpenFile(uffd.Device, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer device.Close()
		fd, err := uffd.Open(device, asyncFeatures)
		if err != nil {
			return err
		}
		defer fd.Close()
		if err := fd.Register(uffd.Of(page)); err != nil {
			return err
		}
		return scan.Protect(page, func(pagemap.Range) {})
	})
}

// checkSync asks the kernel for what package protect asks for.
func checkSync() error {
	device, err := os.OpenFile(uffd.Device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	have, err := uffd.Supported(device)
	if err != nil {
		return err
	}
	if missing := protect.Features &^ have; missing != 0 {
		return fmt.Errorf("kernel lacks userfaultfd features %#x", uint64(missing))
	}
	return checkPagemap()
}

func withPage(f func(page []byte, scan *pagemap.Scanner) error) error {
	page, err := unix.Mmap(-1, 0, pagemap.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	defer unix.Munmap(page)
	self, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return err
	}
	defer self.Close()
	return f(page, pagemap.New(self))
}
