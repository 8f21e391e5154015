package launch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"thaw/guestinit/agentproto"
)

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for path, mode := range map[string]os.FileMode{
		a + "/prog": 0o644, b + "/prog": 0o755, b + "/plain": 0o644, a + "/dir/x": 0o644,
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + a + ":relative:" + b}
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"prog", b + "/prog", nil},
		{"./prog", "./prog", nil},
		{"/x/y", "/x/y", nil},
		{"plain", "", agentproto.ErrPermission},
		{"dir", "", agentproto.ErrNotFound},
		{"none", "", agentproto.ErrNotFound},
	} {
		got, err := LookPath(c.name, env)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

func TestRlimitsNeverExceedRequest(t *testing.T) {
	for _, l := range Rlimits(agentproto.Limits{
		CPUSeconds: 1, FileSizeBytes: 2, OpenFiles: 3, StackBytes: 4, AddressSpaceBytes: 5, Processes: 6,
	}) {
		if l.Soft > l.Hard {
			t.Errorf("rlimit %d: soft %d above hard %d", l.Resource, l.Soft, l.Hard)
		}
		if l.Hard > 6 {
			t.Errorf("rlimit %d is %d", l.Resource, l.Hard)
		}
	}
}
