package checkpoint

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"thaw/api"
)

func TestMetricIsTheDocumentedObject(t *testing.T) {
	m := distribution(restoreAck, unitMilliseconds, []float64{3, 1.00049, 2}).withFloor([]float64{0.5, 0.7, 0.6})
	m.Host, m.Detail, m.Phases = "pvm", "for people", []Phase{{"image", 1}}
	for _, c := range []struct {
		m    Metric
		want string
	}{
		{m, `{"metric":"restore_ack_ms","unit":"ms","p50":2,"p95":3,"p99":3,"n":3,"floor_p50":0.6,"host":"pvm"}`},
		{Metric{Name: "delta_trivial_kib"}.withFloor(nil), `{"metric":"delta_trivial_kib","unit":"","p50":0,"p95":0,"p99":0,"n":0,"floor_p50":null,"host":""}`},
	} {
		b, err := json.Marshal(c.m)
		if err != nil || string(b) != c.want {
			t.Errorf("got  %s, %v\nwant %s", b, err, c.want)
		}
	}
	if text := m.Text(); !strings.Contains(text, " 3.3 ") || !strings.HasSuffix(text, "for people") {
		t.Errorf("ratio to the floor is not in %q", text)
	}
	if len([]rune(Head())) > len([]rune(m.Text())) {
		t.Errorf("head and row do not fit:\n%s\n%s", Head(), m.Text())
	}
}

func TestEveryMetricOfTheTable(t *testing.T) {
	want := strings.Fields(`restore_ack_ms restore_rehearsed_ack_ms restore_python_ms restore_node_ms restore_rehearsed_python_ms
		restore_rehearsed_pandas_ms restore_rehearsed_node_ms restore_bound_ack_ms restore_bound_python_ms pause_8mb_ms pause_256mb_ms rollback_ms rollback_ack_ms rollback_python_ms
		fork100_ms fork100_python_ms jobs_per_s touch_128mb_ms pandas_1m_vs_host chain_depth_ratio delta_trivial_kib pss_per_fork_mib`)
	var got []string
	for _, p := range (&rig{}).parts() {
		got = append(got, p.metrics...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	r := &rig{cfg: Config{Only: []string{"restore_python_ms"}}}
	if err := r.known(); err != nil || !r.wants([]string{restoreAck, restorePython}) || r.wants([]string{pause8}) {
		t.Errorf("only one metric: %v", err)
	}
	r.cfg.Only = []string{"restore_ruby_ms"}
	if err := r.known(); err == nil {
		t.Error("an unknown metric was taken")
	}
}

func TestSums(t *testing.T) {
	var list []float64
	for i := range 100 {
		list = append(list, float64(i+1))
	}
	if m := distribution("x", "ms", list); m.P50 != 50.5 || m.P95 != 95 || m.P99 != 99 || m.N != 100 {
		t.Errorf("times: %+v", m)
	}
	if m := rates("x", "1/s", list); m.P50 != 50.5 || m.P95 != 5 || m.P99 != 1 {
		t.Errorf("rates: %+v", m)
	}
	if m := ratio("x", []float64{30, 20, 10}, []float64{10, 10, 5}); m.P50 != 2 || m.P95 != 3 || m.N != 3 {
		t.Errorf("ratio: %+v", m)
	}
}

func TestWindows(t *testing.T) {
	begin := time.Unix(100, 0)
	var ends []time.Time
	for _, s := range []float64{0.5, 1, 1.25, 1.5, 9} {
		ends = append(ends, begin.Add(time.Duration(s*float64(time.Second))))
	}
	if got := windows(begin, ends, 2); !slices.Equal(got, []float64{2, 4}) {
		t.Errorf("%v", got)
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		n    int
		want []int
	}{{30, []int{6, 6, 6, 6, 6}}, {7, []int{2, 2, 1, 1, 1}}, {2, []int{1, 1}}} {
		if got := share(c.n, 5); !slices.Equal(got, c.want) {
			t.Errorf("%d samples: %v", c.n, got)
		}
	}
}

func TestPhases(t *testing.T) {
	var p phases
	r := api.Record{Op: "rollback", Phases: []api.Phase{
		{Name: "image", MS: 0.5}, {Name: "roll back/restore.memory", MS: 1}, {Name: "roll back/restore.resume", MS: 0.25}, {Name: "roll back", MS: 2},
		{Name: "acknowledge", MS: 3},
	}}
	p.add(r.Phases)
	p.add([]api.Phase{{Name: "image", MS: 1.5}, {Name: "late", MS: 7}})
	if got := p.text(); got != "image 1.00, roll back 2.00, acknowledge 3.00, late 7.00" {
		t.Error(got)
	}
	if got, err := untilRuns(r); err != nil || got != 2.5 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := untilRuns(api.Record{Phases: r.Phases[:2]}); err == nil {
		t.Error("a record that does not tell was taken")
	}
}

func TestParseNumber(t *testing.T) {
	for text, want := range map[string]float64{"12.5\n": 12.5, "1e3\n": 1000, "7": 7} {
		if got, err := parseNumber(text); err != nil || got != want {
			t.Errorf("%q gave %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "\n", "x\n", "1 2\n", "1\n2\n"} {
		if got, err := parseNumber(text); err == nil {
			t.Errorf("%q gave %v", text, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	name, parent, ok := parseStat("42 (a) b (c) S 17 42 0 0")
	if name != "a) b (c" || parent != 17 || !ok {
		t.Errorf("%q %d %v", name, parent, ok)
	}
	for _, text := range []string{"", "42", "42 (x", "42 (x) S", "42 (x) S y", ") ("} {
		if _, _, ok := parseStat(text); ok {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestParseMemory(t *testing.T) {
	if mib, err := parsePSS("00400000-7fff ---p 0 00:00 0 [rollup]\nRss:  9000 kB\nPss:                2560 kB\nPss_Dirty: 1 kB\n"); err != nil || mib != 2.5 {
		t.Errorf("%v, %v", mib, err)
	}
	for _, text := range []string{"", "Rss: 1 kB\n", "Pss: many kB\n"} {
		if _, err := parsePSS(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
	if mib, err := availableMiB(); err != nil || mib <= 0 {
		t.Errorf("host: %v, %v", mib, err)
	}
}

func TestSearchPlan(t *testing.T) {
	p, err := newSearchPlan(100, 49)
	if err != nil {
		t.Fatal(err)
	}
	backs, current := 0, 0
	for node := 1; node <= 100; node++ {
		if p.parent[node] != current {
			t.Fatalf("node %d has parent %d, the current one is %d", node, p.parent[node], current)
		}
		if current = node; p.back[node] >= 0 {
			if current = p.back[node]; current >= node {
				t.Fatalf("back from %d to %d", node, current)
			}
			backs++
		}
		path := p.path(0, node)
		if path[len(path)-1] != node || p.parent[path[0]] != 0 || !slices.IsSorted(path) {
			t.Fatalf("path to %d: %v", node, path)
		}
	}
	if backs != 49 || p.back[100] >= 0 {
		t.Errorf("%d rollbacks, after the last step %d", backs, p.back[100])
	}
	again, _ := newSearchPlan(100, 49)
	if !slices.Equal(p.back, again.back) {
		t.Error("another plan the second time")
	}
	for _, c := range [][2]int{{0, 0}, {5, 5}, {5, -1}} {
		if _, err := newSearchPlan(c[0], c[1]); err == nil {
			t.Errorf("%v was taken", c)
		}
	}
}

func TestCheckTests(t *testing.T) {
	const good = ".....\n------\nRan 5 tests in 0.003s\n\nOK\n"
	if err := checkTests(good, 5); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", strings.Replace(good, "OK", "FAILED (failures=1)", 1), strings.Replace(good, "5", "6", 1)} {
		if err := checkTests(text, 5); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestRepositoryIsPlaced(t *testing.T) {
	cell, err := placeRepository()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"calc/__init__.py"`, `"tests/__init__.py"`, `"tests/test_text.py"`, "def edit(node)"} {
		if !strings.Contains(cell, want) {
			t.Errorf("cell lacks %s", want)
		}
	}
}

func TestStrategies(t *testing.T) {
	c := TrajectoryConfig{Run: RunExec, Policies: []string{"never", "every:5"}, Trackers: []string{"full"}}
	list, err := c.strategies()
	if err != nil || !slices.Equal(list, []Strategy{{"never", ""}, {"every:5", ""}, {"every-step", "full"}}) {
		t.Errorf("%v, %v", list, err)
	}
	c.Policies = []string{"sometimes"}
	if _, err := c.strategies(); err == nil {
		t.Error("an unknown policy was taken")
	}
	c.Policies, c.Run = nil, "shell"
	if _, err := c.strategies(); err == nil {
		t.Error("an unknown way was taken")
	}
}

func TestTrajectorySums(t *testing.T) {
	r := Trajectory{Total: 1500, Steps: 1000, checkpointing: []float64{1, 2, 30}, pauses: []float64{5}}
	r.sum()
	if r.Overhead != 50 || r.Checkpoint != 2 || r.Checkpoint95 != 30 || r.Pause != 5 || r.Back != 0 {
		t.Errorf("%+v", r)
	}
	b, err := json.Marshal(r)
	if err != nil || bytes.Contains(b, []byte("NaN")) || math.IsNaN(r.Back) {
		t.Errorf("%s, %v", b, err)
	}
	r.Error = "it broke"
	if !strings.Contains(r.Text(), "it broke") {
		t.Error(r.Text())
	}
}

func TestQuickEndsInTime(t *testing.T) {
	long := time.Now().Add(-time.Minute)
	r := &rig{cfg: Config{Quick: true}}
	if !r.late(long, 10, time.Second) || r.late(long, 9, time.Second) || r.late(long, 10, time.Hour) {
		t.Error("a quick run does not end when it is late, or when it is not")
	}
	if r.cfg.Quick = false; r.late(long, 10, time.Second) {
		t.Error("a full run ends early")
	}
}
