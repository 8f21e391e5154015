package catalogue

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"thaw/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const me = "uid:1"

func TestCollectable(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	snap := func(id, parent string, used int, change ...func(*Owned)) Owned {
		o := Owned{Tenant: me, Used: at(used), Snapshot: api.Snapshot{ID: id, Parent: parent, State: api.SnapshotDurable, Bytes: 10}}
		for _, c := range change {
			c(&o)
		}
		return o
	}
	all := []Owned{
		snap("t", "", 0, func(o *Owned) { o.Tenant = "" }),
		snap("a", "t", 1), snap("b", "a", 5), snap("c", "a", 4),
		snap("pinned", "t", 0, func(o *Owned) { o.Pinned = true }),
		snap("used", "t", 0, func(o *Owned) { o.Sandboxes = []string{"s"} }),
		snap("young", "t", 9, func(o *Owned) { o.State = api.SnapshotConsistent }),
	}
	for keep, want := range map[int64]string{100: "[]", 60: "[]", 50: "[c]", 40: "[c b]", 35: "[c b a]", 0: "[c b a]"} {
		if got, _ := collectable(me, all, keep); fmt.Sprint(got) != want {
			t.Errorf("keep %d: %v, want %s", keep, got, want)
		}
	}
}
