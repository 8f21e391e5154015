package suite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"thaw/api"
	"thaw/bench/daemon"
	"thaw/client"
)

// outputBytes is what the job of streamStdout prints.
const outputBytes = 1 << 30

// streamTimeout bounds it.
const streamTimeout = 2 * time.Minute

// outputScript prints outputBytes, and on stderr by how many KiB the guest's free
// memory shrank meanwhile at most: that is all that the agent can have held.
const outputScript = `import os, sys
def available():
    with open("/proc/meminfo") as f:
        return next(int(l.split()[1]) for l in f if l.startswith("MemAvailable:"))
chunk = (b"x" * 63 + b"\n") * 1024
first = least = available()
for i in range(%d):
    os.write(1, chunk)
    if i %% 64 == 0:
        least = min(least, available())
print(first - least, file=sys.stderr)
`

// streamStdout has a job print 1 GiB through the daemon to a client, and looks at
// the memory that it takes in between.
func (e *env) streamStdout(ctx context.Context) ([]Metric, error) {
	return e.withDaemon(ctx, e.printMuch)
}

func (e *env) printMuch(ctx context.Context, d *daemon.Daemon) ([]Metric, error) {
	e.say("a job that prints %d MiB", outputBytes>>20)
	before, err := processMemory(d.PID(), "VmRSS")
	if err != nil {
		return nil, err
	}
	in, err := d.Client.AddInput(ctx, strings.NewReader(fmt.Sprintf(outputScript, outputBytes>>16)))
	if err != nil {
		return nil, err
	}
	job, err := d.Client.Submit(ctx, api.JobRequest{
		Runtime: "python", Script: "main.py", Inputs: []api.InputRef{{Name: "main.py", Input: in.Input}},
		Limits: api.Limits{StdoutBytes: 2 * outputBytes, WallSeconds: 600},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	var first, last time.Time
	var got int64
	var stderr strings.Builder
	job, err = d.Client.Follow(ctx, job.ID, client.Watcher{
		Stdout: func(b []byte) error {
			if last = time.Now(); got == 0 {
				first = last
			}
			got += int64(len(b))
			return nil
		},
		Stderr: func(b []byte) error { stderr.Write(b); return nil },
	})
	if err != nil {
		return nil, err
	}
	if job.Result == nil {
		return nil, fmt.Errorf("suite: job is %s without a result", job.State)
	}
	if got != outputBytes || job.Result.Error != nil {
		return nil, fmt.Errorf("suite: job printed %d of %d bytes and ended as %s: %v: %s",
			got, outputBytes, job.State, job.Result.Error, stderr.String())
	}
	peak, err := processMemory(d.PID(), "VmHWM")
	if err != nil {
		return nil, err
	}
	var guestKiB float64
	if _, err := fmt.Sscanf(stderr.String(), "%g", &guestKiB); err != nil {
		return nil, fmt.Errorf("suite: job said %q about its memory: %w", stderr.String(), err)
	}
	rate := float64(got) / last.Sub(first).Seconds() / 1e6
	m := distribution(stdoutRate, "MB/s", []float64{rate})
	m.Detail = fmt.Sprintf("thawd %.1f MiB before, %.1f MiB at most; guest at most %.1f MiB more", before, peak, guestKiB/1024)
	return []Metric{m}, e.sample(stdoutRate, map[string]float64{"mb_s": rate, "thawd_before_mib": before, "thawd_peak_mib": peak, "guest_kib": guestKiB})
}
