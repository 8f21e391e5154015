package journal

import (
	"path/filepath"
	"testing"
)

// A slot as it is on disk is fuzzed, and one whose checksum is made right, since nobody finds that by chance.
func FuzzRecord(f *testing.F) {
	good, err := encode(entry{"x", Record{PID: 42, StartTime: 7, BootID: "b", Cgroup: "/sys/fs/cgroup/thaw/x"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, false)
	f.Add(good[sumSize:], true)
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		slot := make([]byte, recordSize) // what is missing is zeros, as at the end of the file
		copy(slot, b)
		if sum {
			slot = page(string(b[:min(len(b), recordSize-sumSize)]))
		}
		e, err := decode(slot)
		if err != nil {
			if e != (entry{}) {
				t.Errorf("%+v with an error (%v)", e, err)
			}
			return
		}
		if e.PID < 0 || e.PID == 1 || !validID(e.ID) || e.Cgroup != "" && !filepath.IsAbs(e.Cgroup) {
			t.Errorf("accepted %+v", e)
		}
		slot, err = encode(e)
		if err != nil {
			return // escapes make it longer than it was
		}
		if again, err := decode(slot); err != nil || again != e {
			t.Errorf("%+v became %+v (%v)", e, again, err)
		}
	})
}

func FuzzStartTime(f *testing.F) {
	f.Add([]byte("42 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 20"))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = parseStartTime(b) })
}
