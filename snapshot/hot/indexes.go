package hot

import (
	"thaw/snapshot/pageindex"
)

// maxRuns bounds the runs of indexes that are kept, 16 bytes each.
const maxRuns = 1 << 20

// indexes keeps indexes by snapshot, the oldest going first.
type indexes struct {
	byKey map[string]*pageindex.Index
	order []string
	runs  int
}

func (i *indexes) get(key string) *pageindex.Index { return i.byKey[key] }

func (i *indexes) put(key string, x *pageindex.Index) {
	if i.byKey == nil {
		i.byKey = map[string]*pageindex.Index{}
	}
	if i.byKey[key] != nil {
		return
	}
	i.byKey[key] = x
	i.order = append(i.order, key)
	for i.runs += len(x.Runs); i.runs > maxRuns && len(i.order) > 1; i.order = i.order[1:] {
		i.runs -= len(i.byKey[i.order[0]].Runs)
		delete(i.byKey, i.order[0])
	}
}
