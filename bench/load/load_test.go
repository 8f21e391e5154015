package load

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	read = Job{Kind: Fio, Mode: "randread", Block: 4096, Depth: 32, Ramp: 100 * time.Millisecond, Time: time.Second}
	send = Job{Kind: Iperf, Mode: "tx", Time: 2 * time.Second}
)

func TestJobRoundTrip(t *testing.T) {
	for _, j := range []Job{read, send} {
		got, err := ParseJob(j.String())
		if err != nil || got != j {
			t.Errorf("%s gave %+v, %v", j, got, err)
		}
	}
	if got, want := Argument([]Job{read, send}), "thaw.bench=fio/randread/4096/32/100/1000,iperf/tx/2000"; got != want {
		t.Errorf("argument %q, want %q", got, want)
	}
}

func TestParseJobRefuses(t *testing.T) {
	for _, s := range []string{"", "fio", "dd/read/1", "iperf/rx", "iperf/rx/x", "iperf/rx/-1", "fio/read/1/2/3/4/5"} {
		if j, err := ParseJob(s); err == nil {
			t.Errorf("%q gave %+v", s, j)
		}
	}
}

func TestParse(t *testing.T) {
	first := `thaw-bench: result {"job":"` + read.String() + `","rate":5000,"bytes":20480000,"p50_us":80}` + "\r\n"
	second := `thaw-bench: result {"job":"` + send.String() + `","rate":8e9,"bytes":1e9}` + "\r\n"
	const done = "thaw-bench: done\r\n"
	jobs := []Job{read, send}
	results, err := Parse([]byte("[    0.1] kernel: noise\r\n"+first+second+done), jobs)
	if err != nil || len(results) != 2 || results[0].Rate != 5000 || results[0].P50 != 80 || results[1].Bytes != 1e9 {
		t.Fatalf("got %+v, %v", results, err)
	}
	for name, c := range map[string]struct{ console, want string }{
		"nothing":    {"", "0 of 2 results"},
		"cut short":  {first + second, "2 of 2 results"},
		"one only":   {first + done, "1 of 2 results"},
		"order":      {second + first + done, "result 0"},
		"failed":     {first + "thaw-bench: failed iperf/tx/2000: no route\r\n", "no route"},
		"no numbers": {`thaw-bench: result {"job":7}` + "\r\n" + done, "result of the guest"},
		"no rate":    {strings.Replace(first, "5000", "0", 1) + second + done, "result 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.console), jobs)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Parse([]byte("thaw-bench: failed x\n"), jobs); !errors.Is(err, ErrGuest) {
		t.Errorf("a failure in the guest is %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("thaw-bench: result {\"job\":\"" + send.String() + "\",\"rate\":1}\nthaw-bench: done\n"))
	f.Add([]byte("thaw-bench: failed\n\x00\xff"))
	f.Fuzz(func(t *testing.T, console []byte) {
		if results, err := Parse(console, []Job{send}); err == nil && (len(results) != 1 || results[0].Rate <= 0) {
			t.Errorf("accepted %+v", results)
		}
	})
}

func FuzzParseJob(f *testing.F) {
	f.Add(read.String())
	f.Add(send.String())
	f.Fuzz(func(t *testing.T, s string) {
		j, err := ParseJob(s)
		if err != nil {
			return
		}
		if again, err := ParseJob(j.String()); err != nil || again != j {
			t.Errorf("%q gave %+v, then %+v, %v", s, j, again, err)
		}
	})
}
