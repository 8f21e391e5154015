// Package journal remembers on disk which processes and cgroups belong to running
// machines, so that a daemon that was killed can clean up at its next start.
//
// There is one record for each machine, all in one file: each has a slot of one page,
// which the next machine gets when it has ended. A record is written with one system call
// into one page of the file system's cache, so that a daemon that is killed meanwhile
// leaves the old or the new one; a checksum tells what a power failure has left of it,
// after which there is nothing to clean up. (A file for each machine takes an inode, and
// ext4 without a journal looks at each inode that was deleted within the last minute before
// it gives one out.) The daemon's lock on the state directory makes sure that a machine
// found here belongs to a daemon that is gone. A process is only ever killed through a
// pidfd, after its start time has been compared: a number that was given to another process
// since is left alone.
package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrInUse is returned by Open when another daemon has the directory.
var ErrInUse = errors.New("journal: state directory is used by another daemon")

// Journal is a locked directory with the records of machines. It is safe for several
// goroutines; what is done to one machine is done by one at a time.
type Journal struct {
	dir     string
	lock    *os.File
	records *os.File

	mu    sync.Mutex
	slots map[string]slot // protected by mu; by machine
	free  []int64         // protected by mu; slots below next that hold no record
	next  int64           // protected by mu; first slot that was never used
}

// slot is a machine's place in the file.
type slot struct {
	number  int64
	written bool // holds something
}

// Open locks dir, making it if need be.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("journal: make directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("journal: open lock: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrInUse
		}
		return nil, fmt.Errorf("journal: lock: %w", err)
	}
	j := &Journal{dir: dir, lock: lock, slots: map[string]slot{}}
	if err := j.openRecords(); err != nil {
		lock.Close()
		return nil, err
	}
	return j, nil
}

func (j *Journal) openRecords() error {
	f, err := os.OpenFile(filepath.Join(j.dir, "records"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("journal: open records: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("journal: look at records: %w", err)
	}
	// What is there is left alone until Reclaim has seen it.
	j.records, j.next = f, (info.Size()+recordSize-1)/recordSize
	return nil
}

// Dir is the journal's directory.
func (j *Journal) Dir() string { return j.dir }

// Close gives the lock back.
func (j *Journal) Close() error { return errors.Join(j.records.Close(), j.lock.Close()) }

// Create gives a new machine a place for its record, which says nothing yet.
func (j *Journal) Create(id string) error {
	if !validID(id) {
		return fmt.Errorf("journal: invalid machine id %q", id)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.slots[id]; ok {
		return fmt.Errorf("journal: there is a machine %q", id)
	}
	if n := len(j.free); n > 0 {
		j.slots[id], j.free = slot{number: j.free[n-1]}, j.free[:n-1]
		return nil
	}
	j.slots[id] = slot{number: j.next}
	j.next++
	return nil
}

// slot is where a machine's record is.
func (j *Journal) slot(id string) (slot, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.slots[id]
	return s, ok
}

// Write puts down the record of a machine, in the place of the one that there is.
func (j *Journal) Write(id string, r Record) error {
	s, ok := j.slot(id)
	if !ok {
		return fmt.Errorf("journal: there is no machine %q", id)
	}
	b, err := encode(entry{id, r})
	if err != nil {
		return err
	}
	n, err := j.put(s.number, b)
	if n > 0 && !s.written {
		j.keep(id, s.number)
	}
	return err
}

// put returns how many bytes it wrote.
func (j *Journal) put(number int64, b []byte) (int, error) {
	n, err := j.records.WriteAt(b, number*recordSize)
	if err != nil {
		return n, fmt.Errorf("journal: write record: %w", err)
	}
	return n, nil
}

// Remove forgets a machine. Where nothing was written nothing is cleared: that would take
// room of the file system, which may be full.
func (j *Journal) Remove(id string) error {
	s, ok := j.slot(id)
	if !ok {
		return nil
	}
	if !s.written {
		j.release(id, s.number)
		return nil
	}
	return j.clear(id, s.number)
}

var noRecord [recordSize]byte

// clear empties a slot, and then lets another machine have it.
func (j *Journal) clear(id string, number int64) error {
	if _, err := j.put(number, noRecord[:]); err != nil {
		return err
	}
	j.release(id, number)
	return nil
}

func (j *Journal) release(id string, number int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.slots, id)
	j.free = append(j.free, number)
}

// keep notes that a slot holds something of a machine, of this daemon or an earlier one.
func (j *Journal) keep(id string, number int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.slots[id] = slot{number: number, written: true}
}

// Machines counts those that were created and not removed, by this daemon or, once
// Reclaim has seen them, by earlier ones.
func (j *Journal) Machines() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.slots)
}
