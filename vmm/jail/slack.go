package jail

import (
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Timer slacks are how late a sleep may end, in nanoseconds. KVM's own timers know none.
//
// Go's runtime has a thread that watches the others (sysmon): it sleeps for 20 µs at a time while a processor of Go's is in
// a system call, which one always is where a guest runs. In the life of a machine with one job it woke up 177 times, with a
// slack of 250 µs, and took the CPU from the guest for 60 of them. What it is for (to take processors from long calls, and to
// stop long loops) has time: Go has more processors here than threads in calls.
const (
	watchSlack  = 4_000_000
	threadSlack = 250_000
)

// setSlack gives every thread its slack but the one that watches. All have that one's from birth, since it is made before any
// code of ours runs, and new ones have that of the thread that makes them. One that is in a call just now, or that the
// watching thread makes, keeps what it has: its sleeps may end 4 ms late.
func setSlack(Options) error {
	threads, _ := runtime.ThreadCreateProfile(nil)
	set := func() error {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, threadSlack, 0, 0, 0); err != nil {
			return fmt.Errorf("set timer slack: %w", err)
		}
		return nil
	}
	// Before the lock: with the first one the runtime makes a thread that makes others.
	if err := set(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var there sync.WaitGroup
	all := make(chan struct{})
	errs := make(chan error, threads+1)
	errs <- set()
	for range threads - 2 { // without this one and the watching one
		there.Add(1)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			errs <- set()
			there.Done()
			<-all // each of them a thread of its own
		}()
	}
	there.Wait()
	close(all)
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
