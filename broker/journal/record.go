package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strings"
)

// recordSize is the length of a record, in bytes: a page, so that none is in two.
const recordSize = 4096

// sumSize is the length of a record's checksum in hexadecimal, at its begin: CRC-32C of
// the rest. That is JSON, filled up with blanks.
const sumSize = 8

// Record is what must be undone for one machine.
type Record struct {
	PID       int    `json:"pid"`              // of thaw-vmm; 0 before it is started
	StartTime uint64 `json:"start_time"`       // in clock ticks since boot, proc(5) field 22
	BootID    string `json:"boot_id"`          // of the boot that StartTime counts from
	Cgroup    string `json:"cgroup,omitempty"` // absolute path of the machine's cgroup
}

// entry is what a slot holds.
type entry struct {
	ID string `json:"id"`
	Record
}

// errNoRecord says that a slot is empty.
var errNoRecord = errors.New("journal: no record")

func encode(e entry) ([]byte, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("journal: encode record: %w", err)
	}
	if len(b) > recordSize-sumSize {
		return nil, fmt.Errorf("journal: record of %d bytes is longer than %d", len(b), recordSize-sumSize)
	}
	page := bytes.Repeat([]byte{' '}, recordSize)
	copy(page[sumSize:], b)
	copy(page, checksum(page))
	return page, nil
}

func checksum(page []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(page[sumSize:], crc32.MakeTable(crc32.Castagnoli)))
}

// decode reads and checks what is in a slot: a record, or errNoRecord, or it is damaged.
// Preconditions: page has recordSize bytes.
func decode(page []byte) (entry, error) {
	if bytes.Equal(page, noRecord[:]) {
		return entry{}, errNoRecord
	}
	if string(page[:sumSize]) != checksum(page) {
		return entry{}, errors.New("journal: record is damaged: its checksum is another")
	}
	var e entry
	if err := json.Unmarshal(page[sumSize:], &e); err != nil {
		return entry{}, fmt.Errorf("journal: decode record: %w", err)
	}
	if !validID(e.ID) || e.PID < 0 || e.PID == 1 || (e.Cgroup != "" && !filepath.IsAbs(e.Cgroup)) {
		return entry{}, fmt.Errorf("journal: record of machine %q, pid %d and cgroup %q makes no sense", e.ID, e.PID, e.Cgroup)
	}
	return e, nil
}

func validID(id string) bool {
	return id != "" && !strings.ContainsAny(id, "/\x00") && id[0] != '.'
}
