package broker

import (
	"errors"
	"strings"
	"testing"

	"thaw/api"
)

// jobFleet is a fleet whose machines run programs.
func jobFleet() *fakeFleet {
	f := newFakeFleet()
	f.launcher.script = func(*fakeProcess) ExitStatus { s := exited(0); s.Warm = true; return s }
	return f
}

func TestJobStartsFromATemplate(t *testing.T) {
	f := jobFleet()
	b := withFleet(t, f, func(c *Config) { c.TemplateWait = 5e9 })
	r := finished(t, submit(t, b)).Result
	if r.Start == nil || r.Start.Shell != api.ShellRehearsed || !r.Start.Warm || r.Start.WhyCold != "" || r.Start.Snapshot == "" || r.Start.Record == nil {
		t.Errorf("start %+v, error %v", r.Start, r.Error)
	}
	if len(f.machines) != 1 || !f.machines[0].closed || f.launcher.last() != nil {
		t.Errorf("machines %+v", f.machines)
	}
	if e := f.machines[0].exec; e.Runtime != "python" || e.Argv[1] != "main.py" {
		t.Errorf("%+v", e)
	}
	if f.machines[0].spec.Tenant != me || f.machines[0].puts["main.py"] == "" {
		t.Errorf("%+v", f.machines[0])
	}
}

// Whatever stands in the way of a restored machine leads to a booted one.
func TestJobIsBooted(t *testing.T) {
	for name, c := range map[string]struct {
		fleet  func(*fakeFleet)
		change func(*api.JobRequest)
		says   string
	}{
		"template in the making": {func(f *fakeFleet) { f.slow = make(chan struct{}) }, nil, "is being made"},
		"template fails":         {func(f *fakeFleet) { f.templateErr = errDiskFull }, nil, "no space left"},
		"restore fails":          {func(f *fakeFleet) { f.restoreErr = api.Errorf(api.CodeNotAcknowledged, "it did not take it") }, nil, "did not take it"},
		"disk of another size":   {nil, func(r *api.JobRequest) { r.Limits.WorkspaceBytes = 2 << 30 }, "workspace_bytes"},
		"no class":               {nil, func(r *api.JobRequest) { r.Limits.MemoryMiB = 2048 }, "no class"},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobFleet()
			if c.fleet != nil {
				c.fleet(f)
			}
			b := withFleet(t, f)
			j := submit(t, b, func(r *api.JobRequest) {
				if c.change != nil {
					c.change(r)
				}
			})
			v := finished(t, j)
			if s := v.Result.Start; v.State != api.StateDone || s == nil || s.Shell != api.ShellCold || !strings.Contains(s.WhyCold, c.says) {
				t.Errorf("%s, start %+v, error %v", v.State, s, v.Result.Error)
			}
			if f.launcher.last() == nil {
				t.Error("nothing was booted")
			}
		})
	}
}

// A job that is booted although there are templates takes what its class would: the
// next one may be restored.
func TestNeedOfAClass(t *testing.T) {
	b := withFleet(t, jobFleet())
	p, err := newPlan(api.JobRequest{Runtime: "python", Script: "a.py", Inputs: []api.InputRef{{Name: "a.py"}}}, b.most)
	if err != nil {
		t.Fatal(err)
	}
	b.chooseClass(&p)
	if p.class != (Class{1024, 1}) || p.need().MemoryMiB != 1024+VMMMiB {
		t.Errorf("%+v, need %+v", p.class, p.need())
	}
}

func TestFailedTemplateIsNotTriedAgainAtOnce(t *testing.T) {
	f := jobFleet()
	f.templateErr = errors.New("broken")
	b := withFleet(t, f)
	for range 3 {
		if r := finished(t, submit(t, b)).Result; r.Start == nil || !strings.Contains(r.Start.WhyCold, "broken") {
			t.Errorf("%+v", r.Start)
		}
	}
}
