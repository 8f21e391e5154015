package broker

import (
	"encoding/json"
	"io"
	"math"
	"strings"
	"testing"

	"thaw/api"
	"thaw/broker/admission"
)

var roomy = maxLimits(admission.Need{MemoryMiB: 64 << 10, DiskBytes: 1 << 40, CPUMilli: 64000, Machines: 64})

func TestRefusedRequests(t *testing.T) {
	ok := func() api.JobRequest {
		return api.JobRequest{Runtime: "dual", Script: "main.py", Inputs: []api.InputRef{{Name: "main.py"}, {Name: "data/a.csv"}}}
	}
	if _, err := newPlan(ok(), roomy); err != nil {
		t.Fatalf("a good request is refused: %v", err)
	}
	for name, tc := range map[string]struct {
		change func(*api.JobRequest)
		code   api.Code
	}{
		"unknown runtime":     {func(r *api.JobRequest) { r.Runtime = "ruby" }, api.CodeUnknownProfile},
		"network":             {func(r *api.JobRequest) { r.Network = "internet" }, api.CodeNetworkDenied},
		"script missing":      {func(r *api.JobRequest) { r.Script = "other.py" }, api.CodeScriptMissing},
		"script of no kind":   {func(r *api.JobRequest) { r.Script = "data/a.csv" }, api.CodeRequestInvalid},
		"script is an option": {func(r *api.JobRequest) { r.Script, r.Inputs[0].Name = "-cprint(1)#.py", "-cprint(1)#.py" }, api.CodeRequestInvalid},
		"name leads out":      {func(r *api.JobRequest) { r.Inputs[1].Name = "../x" }, api.CodeRequestInvalid},
		"name in out":         {func(r *api.JobRequest) { r.Inputs[1].Name = "out/x" }, api.CodeRequestInvalid},
		"same name twice":     {func(r *api.JobRequest) { r.Inputs[1].Name = "main.py" }, api.CodeRequestInvalid},
		"zero in argument":    {func(r *api.JobRequest) { r.Args = []string{"\x00"} }, api.CodeRequestInvalid},
		"huge arguments":      {func(r *api.JobRequest) { r.Args = []string{strings.Repeat("x", maxArgBytes)} }, api.CodeRequestInvalid},
		"bad variable":        {func(r *api.JobRequest) { r.Env = map[string]string{"A=B": ""} }, api.CodeRequestInvalid},
		"output folder":       {func(r *api.JobRequest) { r.Env = map[string]string{"THAW_OUT": "/tmp"} }, api.CodeRequestInvalid},
		"huge environment":    {func(r *api.JobRequest) { r.Env = map[string]string{"A": strings.Repeat("x", maxEnvBytes)} }, api.CodeRequestInvalid},
		"output type":         {func(r *api.JobRequest) { r.OutputTypes = []string{"png"} }, api.CodeRequestInvalid},
		"too many vCPUs":      {func(r *api.JobRequest) { r.Limits.CPUCores = 64 }, api.CodeLimitImpossible},
		"hardly any CPU":      {func(r *api.JobRequest) { r.Limits.CPUCores = 0.001 }, api.CodeLimitImpossible},
		"too little memory":   {func(r *api.JobRequest) { r.Limits.MemoryMiB = 8 }, api.CodeLimitImpossible},
		"too much memory":     {func(r *api.JobRequest) { r.Limits.MemoryMiB = 1 << 30 }, api.CodeLimitImpossible},
		"negative wall clock": {func(r *api.JobRequest) { r.Limits.WallSeconds = -1 }, api.CodeLimitImpossible},
		"huge disk":           {func(r *api.JobRequest) { r.Limits.WorkspaceBytes = 1 << 60 }, api.CodeLimitImpossible},
		"too many pids":       {func(r *api.JobRequest) { r.Limits.Pids = 1 << 30 }, api.CodeLimitImpossible},
	} {
		t.Run(name, func(t *testing.T) {
			r := ok()
			tc.change(&r)
			if _, err := newPlan(r, roomy); err == nil || err.Code != tc.code || err.Message == "" {
				t.Errorf("got %+v, want %s", err, tc.code)
			}
		})
	}
}

func TestInputsLargerThanTheDisk(t *testing.T) {
	b := newBroker(t, &fakeLauncher{}, func(c *Config) { c.InputBytes = minDisk + 1 })
	in, err := b.AddInput(me, &zeros{minDisk + 1})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, b, "main.py")
	r.Inputs = append(r.Inputs, api.InputRef{Name: "big", Input: in.Input})
	r.Limits.WorkspaceBytes = 1
	if _, err := b.Submit(me, r); code(t, err) != api.CodeInputTooLarge {
		t.Errorf("got %v", err)
	}
}

type zeros struct{ left int }

func (z *zeros) Read(p []byte) (int, error) {
	n := min(len(p), z.left)
	if n == 0 {
		return 0, io.EOF
	}
	clear(p[:n])
	z.left -= n
	return n, nil
}

func TestDefaultsFitASmallHost(t *testing.T) {
	most := maxLimits(admission.Need{MemoryMiB: 400, DiskBytes: 512 << 20, CPUMilli: 2000, Machines: 2})
	l, err := resolveLimits(api.Limits{}, baseDefaults, most)
	if err != nil || l.MemoryMiB > most.MemoryMiB || l.WorkspaceBytes > most.WorkspaceBytes || machineMiB(l.MemoryMiB)+VMMMiB > 400 {
		t.Errorf("%+v of %+v, %v", l, most, err)
	}
}

func TestDiskClass(t *testing.T) {
	for in, want := range map[int64]int64{1: minDisk, minDisk: minDisk, minDisk + 1: 2 * minDisk, 1 << 30: 1 << 30, 1<<30 + 1: 2 << 30, math.MaxInt64: maxDisk} {
		if got := diskClass(in); got != want {
			t.Errorf("%d: %d, want %d", in, got, want)
		}
	}
}

func FuzzPlan(f *testing.F) {
	f.Add([]byte(`{"runtime":"python","script":"main.py","inputs":[{"name":"main.py","input":"x"}],"limits":{"cpu_cores":1e308}}`))
	f.Add([]byte(`{"runtime":"node","script":"a.js","inputs":[{"name":"a.js"},{"name":"b/c"}],"env":{"A":"b"},"args":["\u0000"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r api.JobRequest
		if json.Unmarshal(b, &r) != nil {
			return
		}
		p, err := newPlan(r, roomy)
		if err != nil {
			return
		}
		n := p.need()
		if n.MemoryMiB <= 0 || n.DiskBytes <= 0 || n.CPUMilli <= 0 || p.vcpus() < 1 || p.vcpus() > maxVCPUs || len(p.argv) < 2 {
			t.Errorf("accepted %+v with need %+v", r, n)
		}
	})
}

func TestRuntimeFor(t *testing.T) {
	for script, want := range map[string]string{"a/main.py": "python", "x.mjs": "node", "y.cjs": "node", "z.js": "node", "run.sh": "", "py": ""} {
		got, err := ImageFor(script)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v", script, got, err)
		}
	}
}
