package fleet

import (
	"bytes"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// A machine writes its disk into the file of one that has ended, and finds nothing of it
// there; but never into one that a checkpoint has.
func TestDiskOfAFormerMachine(t *testing.T) {
	// No shells that wait: each machine takes the file of the one before.
	r := newRig(t, func(c *Config) { c.Pool.Generic, c.Pool.Rehearsed = -1, -1 })
	template := r.template(small)
	end := func(m *Machine) {
		t.Helper()
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first := r.restore(template)
	former := inode(t, first)
	sh(t, first, "echo secret-of-the-first > /workspace/file; sync")
	if !topHolds(t, first, "secret-of-the-first") {
		t.Fatal("what the machine wrote is not in its file")
	}
	end(first)

	second := r.restore(template)
	if got := inode(t, second); got != former {
		t.Errorf("the second machine has inode %d, want that of the first, %d", got, former)
	}
	if _, code := try(t, second, "cat /workspace/file"); code == 0 {
		t.Error("the second machine has the file of the first")
	}
	sh(t, second, "echo the-second > /workspace/mine; sync")
	if topHolds(t, second, "secret-of-the-first") {
		t.Error("the second machine's disk has what the first wrote")
	}
	c := checkpoint(t, second)
	above := inode(t, second)
	end(second)

	third := r.restore(template)
	if got := inode(t, third); got != above {
		t.Errorf("the third machine has inode %d, want that above the checkpoint, %d", got, above)
	}
	fourth := r.restore(template)
	if got := inode(t, fourth); got == former {
		t.Error("a machine writes into a checkpoint's layer")
	}
	for _, m := range []*Machine{third, fourth} {
		sh(t, m, "echo another > /workspace/mine; sync")
	}
	if got := sh(t, r.restore(c.ID), "cat /workspace/mine"); got != "the-second" {
		t.Errorf("a fork of the checkpoint reads %q", got)
	}
}

func inode(t *testing.T, m *Machine) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(m.shell.topFile().Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// topHolds says whether the top layer of a machine's disk has a text in it.
func topHolds(t *testing.T, m *Machine, text string) bool {
	t.Helper()
	f := m.shell.topFile()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, info.Size()))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(b, []byte(text))
}
