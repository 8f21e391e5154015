package policy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Record is one line of a record of checkpoints. Times are in milliseconds, pages of
// 4096 bytes.
type Record struct {
	Time     time.Time `json:"time"` // when the step ended
	Machine  string    `json:"machine"`
	Policy   string    `json:"policy"`
	Step     int       `json:"step"`
	Taken    bool      `json:"taken"`              // false: the policy said no
	Snapshot string    `json:"snapshot,omitempty"` // its id
	Parent   string    `json:"parent,omitempty"`
	Depth    int       `json:"depth"`
	Tracker  string    `json:"tracker,omitempty"`
	// Decided are the counts that the policy was told, nil if it asked for none.
	Decided   *Counts `json:"decided,omitempty"`
	Dirty     int64   `json:"dirty_pages"`     // candidates of the tracker
	Stored    int64   `json:"stored_pages"`    // that had changed
	Zero      int64   `json:"zero_pages"`      // that had become zero
	Duplicate int64   `json:"duplicate_pages"` // that had not changed
	DiskBytes int64   `json:"disk_bytes"`
	Bytes     int64   `json:"bytes"` // on disk
	FreezeMS  float64 `json:"freeze_ms"`
	PauseMS   float64 `json:"pause_ms"`
	CopyMS    float64 `json:"copy_ms"`
	DurableMS float64 `json:"durable_ms"` // from consistent to durable
	Error     string  `json:"error,omitempty"`
}

// Counts are those of a Step: -1 is not known.
type Counts struct {
	Pages     int64 `json:"pages"`
	DiskBytes int64 `json:"disk_bytes"`
}

// Milliseconds is d in the unit of a Record.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Writer appends records as JSON, one a line. It is safe for several goroutines, and
// each line is one write, so that several processes may append to one file.
type Writer struct {
	mu sync.Mutex
	w  io.Writer // protected by mu
}

// NewWriter writes to w, which should append.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write appends one record.
func (w *Writer) Write(r Record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("policy: encode record: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("policy: write record: %w", err)
	}
	return nil
}

// maxLine bounds a line of a record, in bytes.
const maxLine = 64 << 10

// ReadAll reads what a Writer wrote. A last line that a crash cut short is left out.
func ReadAll(r io.Reader) ([]Record, error) {
	in := bufio.NewReaderSize(r, maxLine)
	var out []Record
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("policy: read record %d: %w", len(out)+1, err)
		}
		var rec Record
		if err := json.Unmarshal(line, &rec); err != nil {
			return out, fmt.Errorf("policy: read record %d: %w", len(out)+1, err)
		}
		out = append(out, rec)
	}
}
