package warmtest

import (
	"io"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// first notes when the first byte came.
type first struct{ at time.Time }

func (f *first) Write(b []byte) (int, error) {
	if f.at.IsZero() {
		f.at = time.Now()
	}
	return len(b), nil
}

var _ io.Writer = (*first)(nil)

// jobs whose first output is timed.
var jobs = map[string]map[string]string{
	"python": {
		"trivial": "print(sum(range(1000)))",
		"pandas":  "import pandas as pd, numpy as np\ndf = pd.DataFrame({'k': np.arange(20000) % 50, 'v': np.arange(20000)})\nprint(df.groupby('k').v.sum().to_dict())",
	},
	"node": {"trivial": "console.log([1, 2, 3].map((x) => x * x).reduce((a, b) => a + b))"},
}

// times logs what a warm interpreter holds and how long a job takes in it.
func (s *suite) times(t *testing.T, runtime string) {
	for name, text := range jobs[runtime] {
		file := "time-" + name + map[string]string{"python": ".py", "node": ".js"}[runtime]
		if err := s.c.PutFile(t.Context(), file, 0o644, int64(len(text)), strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		const n = 3
		for range n {
			w := s.warm(t, runtime, nil)
			began := time.Now()
			var out first
			p, err := s.c.Run(t.Context(), agentproto.RunRequest{ExecID: w.ExecID, Argv: []string{command[runtime], file}}, agentclient.ExecIO{Stdout: &out})
			if err != nil {
				t.Fatal(err)
			}
			if st, err := p.Wait(); err != nil || st.Code != 0 || p.Started().Cold != "" {
				t.Fatalf("%+v, %v, cold %q", st, err, p.Started().Cold)
			}
			t.Logf("%s %s: warm in %v, %d MiB, %d modules, missing %v; first output after %v, end after %v", runtime, name,
				w.Took.Round(time.Millisecond), w.MemoryBytes>>20, w.Modules, w.Missing, out.at.Sub(began).Round(10*time.Microsecond), time.Since(began).Round(10*time.Microsecond))
		}
	}
}
