// Package journal remembers on disk which processes and cgroups belong to running
// machines, so that a daemon that was killed can clean up at its next start.
//
// There is one record for each machine (ID.json), which is one page of the file system's
// cache: so a daemon that is killed while it writes leaves the old one, the new one, or an
// empty file, which is none. (To write it aside and rename it takes an inode for each
// machine more, as a directory for each would, and ext4 without a journal looks at each
// inode that was deleted within the last minute before it gives one out.) The daemon's lock
// on the state directory makes sure that a machine found here belongs to a daemon that is
// gone. A process is only ever killed through a pidfd, after its start time has been
// compared: a number that was given to another process since is left alone.
package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse is returned by Open when another daemon has the directory.
var ErrInUse = errors.New("journal: state directory is used by another daemon")

const suffix = ".json"

// recordSize is the length of a record, in bytes: what is short of it is blanks.
const recordSize = 4096

// Record is what must be undone for one machine.
type Record struct {
	PID       int    `json:"pid"`              // of thaw-vmm; 0 before it is started
	StartTime uint64 `json:"start_time"`       // in clock ticks since boot, proc(5) field 22
	BootID    string `json:"boot_id"`          // of the boot that StartTime counts from
	Cgroup    string `json:"cgroup,omitempty"` // absolute path of the machine's cgroup
}

// Journal is a locked directory of machines.
type Journal struct {
	dir  string
	lock *os.File
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
	return &Journal{dir: dir, lock: lock}, nil
}

// Dir is the journal's directory.
func (j *Journal) Dir() string { return j.dir }

// Close gives the lock back.
func (j *Journal) Close() error { return j.lock.Close() }

// Create makes the record of a new machine, which says nothing yet.
func (j *Journal) Create(id string) error {
	if !validID(id) {
		return fmt.Errorf("journal: invalid machine id %q", id)
	}
	f, err := os.OpenFile(j.path(id), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("journal: make record: %w", err)
	}
	return f.Close()
}

func (j *Journal) path(id string) string { return filepath.Join(j.dir, id+suffix) }

func validID(id string) bool {
	return id != "" && !strings.ContainsAny(id, "/\x00") && id[0] != '.'
}

// Write puts down the record of a machine, in the place of the one that there is.
func (j *Journal) Write(id string, r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("journal: encode record: %w", err)
	}
	if len(b) > recordSize {
		return fmt.Errorf("journal: record of %d bytes is longer than %d", len(b), recordSize)
	}
	b = append(b, bytes.Repeat([]byte{' '}, recordSize-len(b))...)
	f, err := os.OpenFile(j.path(id), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("journal: open record: %w", err)
	}
	_, err = f.WriteAt(b, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("journal: write record: %w", err)
	}
	return nil
}

// Remove forgets a machine.
func (j *Journal) Remove(id string) error {
	if !validID(id) {
		return fmt.Errorf("journal: invalid machine id %q", id)
	}
	if err := os.Remove(j.path(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("journal: remove machine: %w", err)
	}
	return nil
}

// Leftover is a machine that an earlier daemon left.
type Leftover struct {
	ID     string
	Killed bool  // a process was found and killed
	Err    error // what could not be undone; the record stays for the next try
}

// Reclaim undoes every machine in the journal. It is for the start, before any
// machine of this daemon exists.
func (j *Journal) Reclaim() ([]Leftover, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("journal: list machines: %w", err)
	}
	var out []Leftover
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), suffix)
		if !ok {
			continue
		}
		l := Leftover{ID: id}
		l.Killed, l.Err = j.reclaim(id)
		out = append(out, l)
	}
	return out, nil
}

func (j *Journal) reclaim(id string) (killed bool, err error) {
	r, err := readRecord(j.path(id))
	if err != nil {
		return false, err
	}
	if killed, err = killRecorded(r); err != nil {
		return killed, err
	}
	if err := RemoveCgroup(r.Cgroup); err != nil {
		return killed, err
	}
	return killed, j.Remove(id)
}

func readRecord(path string) (Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return Record{}, fmt.Errorf("journal: open record: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, recordSize+1))
	if err != nil {
		return Record{}, fmt.Errorf("journal: read record: %w", err)
	}
	return parseRecord(b)
}

// parseRecord decodes and checks a record. One that was not written, or whose content the
// host's power did not leave, says nothing: there is no process of it.
func parseRecord(b []byte) (Record, error) {
	var r Record
	if len(b) > recordSize {
		return r, fmt.Errorf("journal: record is longer than %d bytes", recordSize)
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("journal: decode record: %w", err)
	}
	if r.PID < 0 || r.PID == 1 || (r.Cgroup != "" && !filepath.IsAbs(r.Cgroup)) {
		return r, fmt.Errorf("journal: record of pid %d and cgroup %q makes no sense", r.PID, r.Cgroup)
	}
	return r, nil
}
