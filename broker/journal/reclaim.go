package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Leftover is a machine that an earlier daemon left.
type Leftover struct {
	ID string // empty: the record was damaged, and is gone
	Record
	Killed bool  // a process was found and killed
	Err    error // what could not be undone: the record stays for the next try
}

// ErrOldRecord is the error of a Leftover whose record is a file of its own, as the first
// daemons wrote it. It is not read: whoever replaces one of those stops it properly.
var ErrOldRecord = errors.New("journal: record was left by a daemon of an older version: " +
	"see that the process and the cgroup in it are gone, and remove it")

// Reclaim undoes every machine in the journal. It is for the start, before any
// machine of this daemon exists.
func (j *Journal) Reclaim() ([]Leftover, error) {
	out, err := j.oldRecords()
	if err != nil {
		return nil, err
	}
	b := make([]byte, recordSize)
	for number := j.next - 1; number >= 0; number-- { // so that the first is the first to be used
		n, err := j.records.ReadAt(b, number*recordSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return out, fmt.Errorf("journal: read record: %w", err)
		}
		clear(b[n:])
		e, err := decode(b)
		if errors.Is(err, errNoRecord) {
			j.release("", number)
			continue
		}
		l := Leftover{ID: e.ID, Record: e.Record}
		if err == nil {
			l.Killed, err = undo(e.Record)
		}
		// A damaged record is not kept: no later try would make more of it.
		if err == nil || e.ID == "" {
			err = errors.Join(err, j.clear(e.ID, number))
		} else {
			j.keep(e.ID, number)
		}
		l.Err = err
		out = append(out, l)
	}
	return out, nil
}

// oldRecords lists records that have a file each.
func (j *Journal) oldRecords() ([]Leftover, error) {
	const suffix = ".json"
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("journal: look for old records: %w", err)
	}
	var out []Leftover
	for _, f := range files {
		if id, ok := strings.CutSuffix(f.Name(), suffix); ok {
			out = append(out, Leftover{ID: id, Err: fmt.Errorf("%w: %s", ErrOldRecord, filepath.Join(j.dir, f.Name()))})
		}
	}
	return out, nil
}

func undo(r Record) (killed bool, err error) {
	if killed, err = killRecorded(r); err != nil {
		return killed, err
	}
	return killed, RemoveCgroup(r.Cgroup)
}
