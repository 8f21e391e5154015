package suite

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"thaw/bench/load"
	"thaw/bench/machine"
	"thaw/bench/netlab"
)

func TestMetricIsTheDocumentedObject(t *testing.T) {
	m := ratio("blk_4k_read_vs_qemu", []float64{30, 20, 10}, []float64{10, 10, 5})
	m.Host, m.Detail = "pvm", "not for machines"
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"metric":"blk_4k_read_vs_qemu","unit":"x","p50":2,"p95":3,"p99":3,"n":3,"host":"pvm"}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

func TestFailureHasARemedy(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("x: %w", machine.ErrNoQEMU), "qemu-system-x86"},
		{fmt.Errorf("x: %w", netlab.ErrNoIperf), "iperf3"},
		{load.ErrGuest, "thaw doctor"},
	} {
		if f := failure("m", c.err); !strings.Contains(f.Remedy, c.want) || f.Error == "" {
			t.Errorf("%v gave %+v", c.err, f)
		}
	}
}

func TestQuickFitsItsTime(t *testing.T) {
	e := &env{cfg: Config{Quick: true}}
	var seconds float64
	names := map[string]bool{}
	for _, group := range e.comparisons() {
		for _, c := range group {
			names[c.metric] = true
			seconds += 2 * 3 * (c.job.Time + c.job.Ramp).Seconds()
		}
	}
	if len(names) != 8 {
		t.Errorf("metrics %v", names)
	}
	if seconds > 60 {
		t.Errorf("loads take %.0f s: with boots and starts that is more than two minutes", seconds)
	}
}

func TestCompareTakesBytesOfLargeRequests(t *testing.T) {
	for _, group := range (&env{}).comparisons() {
		for _, c := range group {
			m := compare(c, []load.Result{{Rate: 4e3, Bytes: 9e9}}, []load.Result{{Rate: 2e3, Bytes: 3e9}})
			want := 2.0
			if strings.Contains(c.metric, "seq") {
				want = 3
			}
			if math.Abs(m.P50-want) > 1e-9 {
				t.Errorf("%s is %v, want %v", c.metric, m.P50, want)
			}
		}
	}
}

const smaps = `00400000-00800000 r-xp 00000000 fe:00 123 /usr/bin/thaw-vmm
Size:               4096 kB
Rss:                2048 kB
Pss:                1024 kB
VmFlags: rd ex mr mw me sd
7f0000000000-7f0020000000 rw-s 00000000 00:01 77 /memfd:thaw-guest (deleted)
Rss:              100000 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Rss:                1024 kB
`

func TestResidentWithoutTheGuest(t *testing.T) {
	kib, err := residentKiB(strings.NewReader(smaps))
	if err != nil || kib != 3072 {
		t.Errorf("got %d, %v", kib, err)
	}
	if _, err := residentKiB(strings.NewReader(strings.ReplaceAll(smaps, "thaw-guest", "other"))); err == nil {
		t.Error("a process without guest memory was accepted")
	}
}
