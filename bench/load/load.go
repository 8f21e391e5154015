// Package load is what bench and its guest say to each other: jobs on the
// kernel's command line, and results as lines on the console.
//
//	thaw.bench=fio/randread/4096/1/100/1000,iperf/rx/1000
//	thaw-bench: result {"job":"fio/randread/4096/1/100/1000","rate":…}
//	thaw-bench: failed iperf/rx/1000: …
//	thaw-bench: done
package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Where things are in the guest.
const (
	Parameter = "thaw.bench"   // of the kernel's command line
	ImageDev  = "/dev/vda"     // the image with fio and iperf3
	DataDev   = "/dev/vdb"     // what fio reads and writes
	Interface = "eth0"         // the guest's network, if it has one
	Prefix    = "thaw-bench: " // of each line of ours on the console
)

// Addresses of the two ends of the tap, in a network namespace that holds
// nothing else.
const (
	HostIP   = "10.90.0.1"
	GuestIP  = "10.90.0.2"
	MaskBits = 24
)

// Kind is the program that makes the load.
type Kind string

// Programs.
const (
	Fio   Kind = "fio"
	Iperf Kind = "iperf"
)

// Job is one run of a load generator.
type Job struct {
	Kind Kind
	// Mode is fio's rw (randread, randwrite, read, write) or the direction
	// of the data as the guest sees it (rx, tx).
	Mode  string
	Block int           // fio: bytes of a request
	Depth int           // fio: requests in flight
	Ramp  time.Duration // fio: not counted, before Time
	Time  time.Duration // whole milliseconds
}

// String is the job as it stands on the command line.
func (j Job) String() string {
	if j.Kind == Iperf {
		return fmt.Sprintf("%s/%s/%d", j.Kind, j.Mode, j.Time.Milliseconds())
	}
	return fmt.Sprintf("%s/%s/%d/%d/%d/%d", j.Kind, j.Mode, j.Block, j.Depth, j.Ramp.Milliseconds(), j.Time.Milliseconds())
}

// Argument is the kernel parameter for jobs.
func Argument(jobs []Job) string {
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.String()
	}
	return Parameter + "=" + strings.Join(names, ",")
}

// ParseJob reads what String wrote.
func ParseJob(s string) (Job, error) {
	fields := strings.Split(s, "/")
	j := Job{Kind: Kind(fields[0])}
	want := map[Kind]int{Fio: 6, Iperf: 3}[j.Kind]
	if len(fields) != want {
		return j, fmt.Errorf("load: job %q is malformed", s)
	}
	j.Mode = fields[1]
	numbers := make([]int, 0, 4)
	for _, f := range fields[2:] {
		n, err := strconv.Atoi(f)
		if err != nil || n < 0 {
			return j, fmt.Errorf("load: job %q: %q is not a number", s, f)
		}
		numbers = append(numbers, n)
	}
	if j.Kind == Fio {
		j.Block, j.Depth = numbers[0], numbers[1]
		j.Ramp = time.Duration(numbers[2]) * time.Millisecond
	}
	j.Time = time.Duration(numbers[len(numbers)-1]) * time.Millisecond
	return j, nil
}

// Result is what one job measured.
type Result struct {
	Job string `json:"job"`
	// Rate is requests a second (fio) or bits a second (iperf3).
	Rate float64 `json:"rate"`
	// Bytes is bytes a second.
	Bytes float64 `json:"bytes"`
	// P50 and P99 are completion latencies of fio's requests, in microseconds.
	P50 float64 `json:"p50_us,omitempty"`
	P99 float64 `json:"p99_us,omitempty"`
}

// ErrGuest is wrapped by what went wrong in the guest.
var ErrGuest = errors.New("the guest failed")

// Parse finds the results on a console: one for each job, in their order.
func Parse(console []byte, jobs []Job) ([]Result, error) {
	var results []Result
	done := false
	lines := bufio.NewScanner(bytes.NewReader(console))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), Prefix)
		if !ok {
			continue
		}
		if text, ok := strings.CutPrefix(line, "failed "); ok {
			return nil, fmt.Errorf("load: %w: %s", ErrGuest, text)
		}
		if text, ok := strings.CutPrefix(line, "result "); ok {
			var r Result
			if err := json.Unmarshal([]byte(text), &r); err != nil {
				return nil, fmt.Errorf("load: result of the guest: %w", err)
			}
			results = append(results, r)
		}
		done = done || line == "done"
	}
	if !done || len(results) != len(jobs) {
		return nil, fmt.Errorf("load: %w: %d of %d results, console ends: %s", ErrGuest, len(results), len(jobs), tail(console))
	}
	for i, j := range jobs {
		if results[i].Job != j.String() || results[i].Rate <= 0 {
			return nil, fmt.Errorf("load: %w: result %d is %+v, want one of %s", ErrGuest, i, results[i], j)
		}
	}
	return results, nil
}

// tail is the end of a console, for a message.
func tail(console []byte) string {
	const most = 2000
	return fmt.Sprintf("%q", console[max(0, len(console)-most):])
}
