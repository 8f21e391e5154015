package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// How often a waiting builder looks again. A blocking flock could not be given
// up when the caller's context ends.
const (
	lockPollFirst = 2 * time.Millisecond
	lockPollMost  = 250 * time.Millisecond
)

// lock takes the exclusive flock of the file at path, making it if needed, and
// returns the function that releases it.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	wait := lockPollFirst
	for {
		unlock, ok, err := tryLock(path)
		if err != nil || ok {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cache: wait for another builder: %w", ctx.Err())
		case <-time.After(wait):
		}
		wait = min(2*wait, lockPollMost)
	}
}

// tryLock is lock without the wait: ok tells whether it was free. The file
// stays: removing it would let two holders lock two different files of one name.
func tryLock(path string) (unlock func(), ok bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, false, fmt.Errorf("cache: open lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		// Closing releases the flock: no other descriptor shares it.
		return func() { f.Close() }, true, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("cache: take lock: %w", err)
}
