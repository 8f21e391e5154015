package checkpoint

import (
	"fmt"
	"strings"

	"thaw/api"
	"thaw/bench/stats"
)

// phases collects the phases of operations of one kind, in the order of the first.
type phases struct {
	names   []string
	samples map[string][]float64
}

func (p *phases) add(list []api.Phase) {
	for _, one := range list {
		p.one(one.Name, one.MS)
	}
}

func (p *phases) one(name string, ms float64) {
	if p.samples == nil {
		p.samples = map[string][]float64{}
	}
	if _, ok := p.samples[name]; !ok {
		p.names = append(p.names, name)
	}
	p.samples[name] = append(p.samples[name], ms)
}

// medians returns each phase's median.
func (p *phases) medians() []Phase {
	var list []Phase
	for _, name := range p.names {
		list = append(list, Phase{name, round(stats.Median(p.samples[name]))})
	}
	return list
}

// text is the phases that are no parts of others, as one line.
func (p *phases) text() string {
	var list []string
	for _, m := range p.medians() {
		if !strings.Contains(m.Name, "/") {
			list = append(list, fmt.Sprintf("%s %.2f", m.Name, m.MS))
		}
	}
	return strings.Join(list, ", ")
}

// phaseMS is the time of one phase of a record.
func phaseMS(r api.Record, name string) (ms float64, ok bool) {
	for _, p := range r.Phases {
		if p.Name == name {
			return p.MS, true
		}
	}
	return 0, false
}

// untilRuns is the time of a rollback until the VMM has answered that the guest runs.
func untilRuns(r api.Record) (ms float64, err error) {
	runs := false
	for _, p := range r.Phases {
		switch {
		case p.Name == "roll back/restore.resume":
			runs = true
		case !strings.Contains(p.Name, "/"):
			ms += p.MS
		}
		if runs && p.Name == "roll back" {
			return ms, nil
		}
	}
	return 0, fmt.Errorf("checkpoint: record of a %s does not say when the guest ran", r.Op)
}
