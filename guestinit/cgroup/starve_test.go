package cgroup

import (
	"strings"
	"testing"
	"time"
)

func TestStarve(t *testing.T) {
	const mib = 1 << 20
	// Each look is a second after the one before; refaults (in pages) and
	// stalls are those of that second.
	for _, c := range []struct {
		name     string
		memory   int64
		cache    int64
		refaults int64
		stalled  time.Duration
		looks    int // until it is told; 0 is never
	}{
		{"idle", 40 * mib, 5 * mib, 0, 0, 0},
		{"all of it its own", 60 * mib, 0, 0, 0, 0},
		{"a stuck hog", 64 * mib, 120 << 10, 15_000, 100 * time.Millisecond, 3},
		{"without any cache", 64 * mib, 0, 1_000, 0, 3},
		{"a hog on a slow disk", 64 * mib, 300 << 10, 1_500, 900 * time.Millisecond, 3},
		{"some faults", 64 * mib, 4096, 200, 0, 0},
		{"a hog that needs its files", 64 * mib, 18 * mib, 16_000, 700 * time.Millisecond, 6},
		{"a reader of large files", 64 * mib, 60 * mib, 60_000, 320 * time.Millisecond, 0},
		{"a reader of a slow disk", 64 * mib, 60 * mib, 5_000, 950 * time.Millisecond, 0},
		{"a reader with memory of its own", 64 * mib, 20 * mib, 50_000, 300 * time.Millisecond, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hunger{at: time.Now(), memory: c.memory, cache: c.cache, refaults: 1 << 40, stalled: time.Hour}
			s := new(Starve)
			for look := 1; look < 20; look++ {
				why := s.judge(h)
				if told := c.looks != 0 && look >= c.looks; told != (why != "") {
					t.Fatalf("look %d says %q", look, why)
				}
				if why != "" {
					t.Log(why)
					return
				}
				h.at = h.at.Add(time.Second)
				h.refaults += c.refaults
				h.stalled += c.stalled
			}
		})
	}
	t.Run("not in a row", func(t *testing.T) {
		h := hunger{at: time.Now(), memory: 64 * mib, cache: 100 << 10}
		s := new(Starve)
		for range 20 {
			h.at = h.at.Add(time.Second)
			h.refaults += 20_000
			if why := s.judge(h); why != "" {
				t.Fatal(why)
			}
			h.at = h.at.Add(time.Second)
			if why := s.judge(h); why != "" {
				t.Fatal(why)
			}
		}
	})
}

func TestReadHunger(t *testing.T) {
	files := map[string]string{
		"memory.current": "67108864\n",
		"memory.stat":    "anon 100\nfile 5000\nkernel 7\nshmem 1000\nslab_reclaimable 30\nworkingset_refault_anon 1\nworkingset_refault_file 12\n",
		"memory.pressure": "some avg10=1.00 avg60=2.00 avg300=3.00 total=900\n" +
			"full avg10=1.00 avg60=2.00 avg300=3.00 total=800\n",
	}
	want := hunger{memory: 64 << 20, cache: 4030, refaults: 12, stalled: 800 * time.Microsecond}
	if got, err := readHunger(fake(t, files)); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	delete(files, "memory.pressure")
	want.stalled = 0
	if got, err := readHunger(fake(t, files)); err != nil || got != want {
		t.Errorf("without PSI: %+v, %v", got, err)
	}
	g := &Group{m: &Manager{controllers: wanted}, dir: fake(t, nil)}
	if why := g.Starve().Look(); why != "" {
		t.Errorf("a group that is gone: %s", why)
	}
	for _, nonsense := range []string{"", "full", "full total=", "full avg10=0 total=x", strings.Repeat("full ", 900)} {
		if d := stallTime(nonsense); d != 0 {
			t.Errorf("%.20q is %v", nonsense, d)
		}
	}
}
