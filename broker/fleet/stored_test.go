package fleet

import (
	"bytes"
	"encoding/base64"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"thaw/snapshot/manifest"
)

// onDisk is what a file of the guest has on the writable disk, past its memory.
func onDisk(t *testing.T, m *Machine, name string) []byte {
	t.Helper()
	text := sh(t, m, "dd if="+name+" iflag=direct bs=64k status=none | base64 -w0")
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A merged checkpoint has the files of the one that was merged, byte for byte, where
// several layers of the disk have parts of them; another daemon restores it without the
// checkpoints that it was made on.
func TestMergedDisk(t *testing.T) {
	var first, last string
	want := map[string][]byte{}
	t.Run("merge", func(t *testing.T) {
		r := newRig(t, nil)
		m := r.restore(r.template(small))
		write := `import os
def write(name, at, size):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, os.urandom(size), at); os.fsync(fd); os.close(fd)
`
		cell(t, m, write+"write('a', 0, 256 << 10); write('b', 0, 64 << 10); write('gone', 0, 1 << 20); step = 1")
		first = checkpoint(t, m).ID
		cell(t, m, "write('a', 12 << 10, 64 << 10); write('c', 8 << 10, 20 << 10); os.unlink('gone'); step = 2")
		checkpoint(t, m)
		cell(t, m, "write('a', 200 << 10, 8 << 10); os.truncate('b', 10000); write('b', 60 << 10, 4 << 10); os.sync(); step = 3")
		last = checkpoint(t, m).ID
		for _, name := range []string{"a", "b", "c"} {
			want[name] = onDisk(t, m, name)
		}
		if a, b, c := len(want["a"]), len(want["b"]), len(want["c"]); a != 256<<10 || b != 64<<10 || c != 28<<10 {
			t.Fatalf("files of %d, %d, %d bytes", a, b, c)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, err := r.cfg.Store.Get(last)
		if err != nil {
			t.Fatal(err)
		}
		after, err := r.cfg.Store.Merge(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		if was, is := len(before.Disks[1].Layers), len(after.Disks[1].Layers); is >= was || after.Parent != before.Memory[0].Snapshot {
			t.Fatalf("merged from %d layers to %d, onto %s", was, is, after.Parent)
		}
	})
	if t.Failed() {
		return
	}
	t.Run("restore", func(t *testing.T) {
		r := newRig(t, nil)
		if err := r.cfg.Store.Delete(first, true); err != nil {
			t.Fatal(err)
		}
		m := r.restore(last)
		for name, b := range want {
			if !bytes.Equal(onDisk(t, m, name), b) {
				t.Errorf("%s differs", name)
			}
		}
		if got := sh(t, m, "ls | tr '\\n' ' '"); got != "a b c" && got != "a b c out" {
			t.Errorf("files: %q", got)
		}
		if got := cell(t, m, "print(step)"); got != "3" {
			t.Errorf("step %s", got)
		}
		// It goes on from there.
		cell(t, m, "write('a', 0, 4096)")
		if b := onDisk(t, m, "a"); !bytes.Equal(b[4096:], want["a"][4096:]) || bytes.Equal(b[:4096], want["a"][:4096]) {
			t.Error("a write to it did not do what it should")
		}
	})
}

// age makes a stored snapshot look as if it had been made so long ago. Preconditions: no
// store is open.
func age(t *testing.T, id string, by time.Duration) {
	t.Helper()
	file := filepath.Join(storeDir, "snapshots", id, "manifest.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []*time.Time{&m.Created, &m.Record.Consistent, &m.Record.Durable} {
		*at = at.Add(-by)
	}
	if b, err = m.Encode(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(filepath.Dir(file), e.Name()), m.Created, m.Created); err != nil {
			t.Fatal(err)
		}
	}
}

// A template and a checkpoint that are older than a month are restored as ever: the
// template is found again, not built anew, the guest's clock is the host's, and what was
// in memory and on the disk is there.
func TestOlderThanAMonth(t *testing.T) {
	const old = 45 * 24 * time.Hour
	// late is by how many seconds a guest's wall clock differs from the host's.
	late := func(t *testing.T, m *Machine) float64 {
		t.Helper()
		before := time.Now()
		s, err := strconv.ParseFloat(cell(t, m, "import time; print(repr(time.time()))"), 64)
		if err != nil {
			t.Fatal(err)
		}
		now := float64(before.UnixNano()) / 1e9
		return max(0, now-s, s-now-time.Since(before).Seconds())
	}
	var template, onTop string
	t.Run("save", func(t *testing.T) {
		r := newRig(t, nil)
		template = r.template(small)
		m := r.restore(template)
		// The guest lives in that time: its memory and its files are of then.
		g, err := r.newGeneration("")
		if err != nil {
			t.Fatal(err)
		}
		g.Wall = time.Now().Add(-old).UnixNano()
		if _, err := m.Agent().SetGeneration(t.Context(), g); err != nil {
			t.Fatal(err)
		}
		cell(t, m, `import time
began, up = time.time(), time.monotonic()
with open("then", "w") as f: f.write("written then")`)
		if s := late(t, m); math.Abs(s-old.Seconds()) > 1 {
			t.Fatalf("the guest's clock is %.1f s late, not %.1f", s, old.Seconds())
		}
		onTop = checkpoint(t, m).ID
	})
	if t.Failed() {
		return
	}
	age(t, template, old)
	age(t, onTop, old)
	t.Run("restore", func(t *testing.T) {
		r := newRig(t, nil)
		stored, err := r.cfg.Store.Get(onTop)
		if err != nil || time.Since(stored.Created) < old {
			t.Fatalf("checkpoint %+v, %v", stored, err)
		}
		if again := r.template(small); again != template {
			t.Errorf("another template was built")
		}
		for _, id := range []string{template, onTop} {
			m := r.restore(id)
			if s := late(t, m); s > 0.1 {
				t.Errorf("the clock differs by %.3f s", s)
			}
			if got := sh(t, m, "echo hello > x; cat x"); got != "hello" {
				t.Errorf("got %q", got)
			}
		}
		m := r.restore(onTop)
		if got := cell(t, m, `print(open("then").read(), round((time.time() - began) / 86400), time.monotonic() - up < 600)`); got != "written then 45 True" {
			t.Errorf("got %q", got)
		}
		if days := cell(t, m, `import os; print(round((time.time() - os.stat("then").st_mtime) / 86400))`); days != "45" {
			t.Errorf("the file is %s days old", days)
		}
		if _, err := m.Rollback(t.Context(), template); err != nil {
			t.Fatal(err)
		}
		if s := late(t, m); s > 0.1 {
			t.Errorf("rolled back, the clock differs by %.3f s", s)
		}
	})
}
