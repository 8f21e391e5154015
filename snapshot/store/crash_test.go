package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The environment by which the test starts itself as the process that crashes.
const (
	crashOp   = "STORE_CRASH_OP"
	crashRoot = "STORE_CRASH_ROOT"
	crashAt   = "STORE_CRASH_AT" // the step, by number, at which it kills itself
)

// known is what snapshots of a store must have.
type known struct {
	ids   []string
	mem   [][]byte
	disks []string
}

// crashStart makes the store that each operation finds: a template, a checkpoint and
// two children of it.
func crashStart(t testing.TB, root string) (k known) {
	s := open(t, root)
	defer s.Close()
	m := newMachine(t, 21)
	keep := func(id string) string {
		k.ids, k.mem, k.disks = append(k.ids, id), append(k.mem, bytes.Clone(m.mem)), append(k.disks, string(m.disk))
		return id
	}
	at := keep(m.mustSave(s, ""))
	for range 2 {
		m.run()
		at = keep(m.mustSave(s, at))
	}
	m.mem, m.old, m.disk = bytes.Clone(k.mem[1]), bytes.Clone(k.mem[1]), []byte(k.disks[1])
	m.run()
	keep(m.mustSave(s, k.ids[1]))
	archive, err := os.Create(filepath.Join(root, "archive"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	if err := s.Export(context.Background(), k.ids[2], archive); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "ids"), []byte(strings.Join(k.ids, " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// crashOps are the operations, and how many snapshots there are before and after.
var crashOps = map[string]struct {
	after int
	run   func(t testing.TB, s *Store, ids []string) error
	done  func(s *Store, ids []string) bool // where the number of snapshots does not tell
}{
	"template": {after: 5, run: func(t testing.TB, s *Store, ids []string) error {
		_, err := newMachine(t, 50).save(s, "")
		return err
	}},
	"checkpoint": {after: 5, run: func(t testing.TB, s *Store, ids []string) error {
		_, err := crashMachine(t, s, ids).save(s, ids[2])
		return err
	}},
	"merge": {after: 4, run: func(t testing.TB, s *Store, ids []string) error {
		_, err := s.Merge(context.Background(), ids[2])
		return err
	}, done: func(s *Store, ids []string) bool { return s.entries[ids[2]].m.Parent == ids[0] }},
	"annotate": {after: 4, run: func(t testing.TB, s *Store, ids []string) error {
		_, err := s.Annotate(ids[1], func(m *Manifest) { m.Pinned = true })
		return err
	}, done: func(s *Store, ids []string) bool { return s.entries[ids[1]].m.Pinned }},
	"delete":  {after: 3, run: func(t testing.TB, s *Store, ids []string) error { return s.Delete(ids[2], false) }},
	"cascade": {after: 1, run: func(t testing.TB, s *Store, ids []string) error { return s.Delete(ids[1], true) }},
	"import": {after: 7, run: func(t testing.TB, s *Store, ids []string) error {
		f, err := os.Open(filepath.Join(s.root, "archive"))
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = s.Import(context.Background(), f, ImportOptions{Tenant: "t"})
		return err
	}},
}

// crashMachine runs on from the third snapshot, always in the same way.
func crashMachine(t testing.TB, s *Store, ids []string) *machine {
	m := newMachine(t, 22)
	m.mem = memoryOf(t, s, ids[2])
	m.old = bytes.Clone(m.mem)
	m.run()
	return m
}

// crashTB is the little that the rig wants of a testing.TB in the child.
type crashTB struct {
	testing.TB
}

func (crashTB) Helper()             {}
func (crashTB) Cleanup(func())      {}
func (t crashTB) Fatal(args ...any) { fmt.Fprintln(os.Stderr, args...); os.Exit(3) }

// crashChild does what the environment says, if it says so.
func crashChild() bool {
	op, ok := crashOps[os.Getenv(crashOp)]
	if !ok {
		return false
	}
	t := crashTB{}
	limit, _ := strconv.Atoi(os.Getenv(crashAt))
	root := os.Getenv(crashRoot)
	ids, err := os.ReadFile(filepath.Join(root, "ids"))
	if err != nil {
		t.Fatal(err)
	}
	n, armed := 0, false
	s, err := Open(Options{Root: root, Folder: testFolder{}, hook: func(p step) error {
		if !armed {
			return nil
		}
		if n++; n == limit {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		fmt.Println(p)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	armed = true
	if err := op.run(t, s, strings.Fields(string(ids))); err != nil {
		t.Fatal(err)
	}
	return true
}

// crash runs an operation in a process of its own, which kills itself at a step, and
// returns the steps that it took. Step 0 is none.
func crash(t *testing.T, op, root string, at int) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), crashOp+"="+op, crashRoot+"="+root, crashAt+"="+strconv.Itoa(at))
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	err = cmd.Run()
	killed := cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if at == 0 && err != nil || at > 0 && !killed {
		t.Fatalf("%s at step %d: %v", op, at, err)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// Killed at any step of any operation, the store has the old state or the new one,
// every snapshot whole, and no debris.
func TestKilledAtEveryStep(t *testing.T) {
	tree := memoryDir(t)
	k := crashStart(t, tree)
	for op, want := range crashOps {
		t.Run(op, func(t *testing.T) {
			root := copyTree(t, tree)
			steps := crash(t, op, root, 0)
			after := judgeCrash(t, root, k)
			if after != want.after {
				t.Fatalf("%d snapshots after it, not %d", after, want.after)
			}
			seen := map[int]bool{}
			for i, p := range steps {
				root := copyTree(t, tree)
				crash(t, op, root, i+1)
				n := judgeCrash(t, root, k)
				if n != 4 && n != want.after {
					t.Errorf("killed at %q: %d snapshots, neither 4 nor %d", p, n, want.after)
				}
				seen[n] = true
			}
			if len(steps) < 2 || want.after != 4 && !seen[want.after] {
				t.Errorf("steps %v never reached the new state", steps)
			}
		})
	}
}

// judgeCrash opens the store and returns how many snapshots it has.
func judgeCrash(t *testing.T, root string, k known) int {
	t.Helper()
	s, err := Open(Options{Root: root, Folder: testFolder{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	clean(t, s)
	list := s.List("")
	for _, i := range list {
		got, disk := memoryOf(t, s, i.ID), top(t, s, i.ID)
		at := max(slices.Index(k.ids, i.ID), slices.Index(k.ids, i.Manifest.Origin))
		switch {
		case at >= 0 && (!bytes.Equal(got, k.mem[at]) || disk != k.disks[at]):
			t.Errorf("memory or disk of %s differs", i.ID)
		case at < 0 && i.Manifest.Kind == Template && !bytes.Equal(got, newMachine(t, 50).mem):
			t.Errorf("memory of the new template differs")
		case at < 0 && i.Manifest.Kind == Checkpoint && !bytes.Equal(got, crashMachine(t, s, k.ids).mem):
			t.Errorf("memory of the new checkpoint differs")
		}
	}
	return len(list)
}

// memoryDir is a folder in memory, where there is one: a process that is killed loses
// nothing that it wrote, so that syncing to a disk would show nothing more.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(memoryRoot(), "store-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func memoryRoot() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// copyTree copies a store.
func copyTree(t *testing.T, from string) string {
	t.Helper()
	to := memoryDir(t)
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// A fault of the file system at any step, instead of a crash: the caller is told, the
// store goes on, and has the old state or the new one.
func TestFaultAtEveryStep(t *testing.T) {
	tree := memoryDir(t)
	k := crashStart(t, tree)
	for op, want := range crashOps {
		for at := 1; ; at++ {
			root := copyTree(t, tree)
			n, armed := 0, false
			s, err := Open(Options{Root: root, Folder: testFolder{}, hook: func(step) error {
				if n++; armed && n == at {
					return io.ErrClosedPipe
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			n, armed = 0, true
			err = want.run(t, s, k.ids)
			reached := n >= at
			armed = false
			if reached && err == nil {
				t.Errorf("%s: fault %d was not told", op, at)
			}
			for _, id := range k.ids {
				if _, err := s.Get(id); err == nil {
					memoryOf(t, s, id)
				}
			}
			before := len(s.List(""))
			s.Close()
			got := judgeCrash(t, root, k)
			if got != 4 && got != want.after {
				t.Errorf("%s: fault %d left %d snapshots", op, at, got)
			}
			if got != before && op != "cascade" && op != "import" {
				t.Errorf("%s: fault %d: %d snapshots, %d after reopening", op, at, before, got)
			}
			if !reached {
				break
			}
		}
	}
}
