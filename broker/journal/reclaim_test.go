package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a daemon with a file for each record has left is told of at every start, and left
// alone.
func TestOldRecordsAreToldOf(t *testing.T) {
	j := open(t)
	path := filepath.Join(j.dir, "vm7.json")
	if err := os.WriteFile(path, []byte(`{"pid":42,"start_time":7,"boot_id":"b"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Create("new"), j.Write("new", Record{})); err != nil {
		t.Fatal(err)
	}
	for want := 2; want > 0; want-- { // the new one only once
		j = again(t, j)
		got, err := j.Reclaim()
		if err != nil || len(got) != want || got[0].ID != "vm7" || !errors.Is(got[0].Err, ErrOldRecord) || !strings.Contains(got[0].Err.Error(), path) {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if j.Machines() != 0 {
		t.Errorf("%d machines", j.Machines())
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
