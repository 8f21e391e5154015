package cache

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func setDir(t *testing.T) string {
	t.Helper()
	base := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", base)
	return filepath.Join(base, "thaw")
}

func write(name, content string) func(context.Context, string) error {
	return func(_ context.Context, dir string) error {
		return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
	}
}

// entries lists what is in the folder of kind, without lock files.
func entries(t *testing.T, dir, kind string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, kind))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		if !strings.HasSuffix(e.Name(), ".lock") {
			names = append(names, e.Name())
		}
	}
	return names
}

func TestGetBuildsOnce(t *testing.T) {
	setDir(t)
	key := Key("once")
	if _, ok, err := Lookup("kernel", key); ok || err != nil {
		t.Fatalf("Lookup before: %v, %v", ok, err)
	}
	first, err := Get(t.Context(), "kernel", key, write("vmlinux", "bytes"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := Get(t.Context(), "kernel", key, func(context.Context, string) error {
		t.Error("built again")
		return nil
	})
	if err != nil || second != first {
		t.Fatalf("second Get: %q, %v; want %q", second, err, first)
	}
	if b, err := os.ReadFile(filepath.Join(first, "vmlinux")); err != nil || string(b) != "bytes" {
		t.Fatalf("result holds %q, %v", b, err)
	}
	if found, ok, err := Lookup("kernel", key); !ok || err != nil || found != first {
		t.Fatalf("Lookup after: %q, %v, %v", found, ok, err)
	}
}

func TestConcurrentGet(t *testing.T) {
	dir := setDir(t)
	key := Key("concurrent")
	var builds, inside atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			p, err := Get(t.Context(), "image", key, func(ctx context.Context, dir string) error {
				if inside.Add(1) != 1 {
					t.Error("two builders at once")
				}
				defer inside.Add(-1)
				builds.Add(1)
				time.Sleep(20 * time.Millisecond)
				return write("f", "x")(ctx, dir)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(p, "f")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("%d builds, want 1", n)
	}
	if got := entries(t, dir, "image"); len(got) != 1 || got[0] != key {
		t.Errorf("cache holds %v, want only the result", got)
	}
}

func TestFailedBuildLeavesNothing(t *testing.T) {
	dir := setDir(t)
	key := Key("failed")
	broken := errors.New("broken")
	_, err := Get(t.Context(), "lab", key, func(ctx context.Context, dir string) error {
		if err := write("half", "x")(ctx, dir); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("Get: %v, want the builder's error", err)
	}
	if got := entries(t, dir, "lab"); len(got) != 0 {
		t.Errorf("failed build left %v", got)
	}
	if _, err := Get(t.Context(), "lab", key, write("whole", "x")); err != nil {
		t.Errorf("build after a failed one: %v", err)
	}
}

func TestPanickingBuildLeavesNothing(t *testing.T) {
	dir := setDir(t)
	func() {
		defer func() { recover() }()
		Get(t.Context(), "lab", Key("panic"), func(context.Context, string) error { panic("bug") })
	}()
	if got := entries(t, dir, "lab"); len(got) != 0 {
		t.Errorf("panicking build left %v", got)
	}
	if _, err := Get(t.Context(), "lab", Key("panic"), write("f", "x")); err != nil {
		t.Errorf("the lock was not released: %v", err)
	}
}

func TestBadNames(t *testing.T) {
	setDir(t)
	good := Key("x")
	for _, c := range []struct{ name, kind, key string }{
		{"empty kind", "", good},
		{"kind with a slash", "a/b", good},
		{"kind going up", "..", good},
		{"kind in capitals", "Kernel", good},
		{"empty key", "kernel", ""},
		{"short key", "kernel", good[1:]},
		{"long key", "kernel", good + "0"},
		{"key in capitals", "kernel", strings.ToUpper(good)},
		{"key going up", "kernel", "../" + good[3:]},
		{"key with a newline", "kernel", good[:63] + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, _, err := Lookup(c.kind, c.key); err == nil {
				t.Error("Lookup accepted it")
			}
			if _, err := Get(t.Context(), c.kind, c.key, write("f", "x")); err == nil {
				t.Error("Get accepted it")
			}
		})
	}
}

func TestKeyTellsListsApart(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}} {
		k := Key(parts...)
		if old, ok := seen[k]; ok {
			t.Errorf("%q and %q have one key", old, parts)
		}
		seen[k] = parts
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	setDir(t)
	key := Key("wait")
	entered, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := Get(t.Context(), "kernel", key, func(context.Context, string) error {
			close(entered)
			<-release
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := Get(ctx, "kernel", key, write("f", "x")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting Get: %v, want the context's error", err)
	}
	close(release)
	wg.Wait()
}

func TestResultThatIsAFile(t *testing.T) {
	dir := setDir(t)
	key := Key("file")
	os.MkdirAll(filepath.Join(dir, "kernel"), 0o755)
	os.WriteFile(filepath.Join(dir, "kernel", key), nil, 0o644)
	if _, err := Get(t.Context(), "kernel", key, write("f", "x")); err == nil {
		t.Error("a file was taken for a result")
	}
}

// TestLeftoversOfOtherKeys: what a dead builder of another key left goes too,
// what a living one is at work on stays.
func TestLeftoversOfOtherKeys(t *testing.T) {
	dir := setDir(t)
	kind := filepath.Join(dir, "kernel")
	dead, unrelated := Key("dead")+tmpMark+"123", "notes"+tmpMark+"1"
	for _, name := range []string{dead, unrelated} {
		if err := os.MkdirAll(filepath.Join(kind, name, "tree"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	living, build := Key("living"), Key("build")
	_, err := Get(t.Context(), "kernel", living, func(ctx context.Context, dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o644); err != nil {
			return err
		}
		if _, err := Get(ctx, "kernel", build, write("f", "x")); err != nil {
			return err
		}
		_, err := os.Stat(filepath.Join(dir, "half"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{living, build, unrelated}
	slices.Sort(want)
	if got := entries(t, dir, "kernel"); !slices.Equal(got, want) {
		t.Errorf("cache holds %v, want %v", got, want)
	}
}

// TestKilledBuilder kills a process in the middle of its build: the lock goes
// with it, and the next builder removes what it left.
func TestKilledBuilder(t *testing.T) {
	const marker = "THAW_CACHE_TEST_BUILDER"
	key := Key("killed")
	if ready := os.Getenv(marker); ready != "" {
		Get(context.Background(), "kernel", key, func(ctx context.Context, dir string) error {
			write("half", "x")(ctx, dir)
			os.WriteFile(ready, nil, 0o644)
			select {}
		})
		return
	}
	dir := setDir(t)
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledBuilder$")
	cmd.Env = append(os.Environ(), marker+"="+ready)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			t.Fatal("the builder never began")
		}
		time.Sleep(5 * time.Millisecond)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if got := entries(t, dir, "kernel"); len(got) != 1 || !strings.Contains(got[0], ".tmp-") {
		t.Fatalf("killed builder left %v, want its temporary directory", got)
	}
	if _, err := Get(t.Context(), "kernel", key, write("whole", "x")); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, dir, "kernel"); len(got) != 1 || got[0] != key {
		t.Errorf("cache holds %v, want only the result", got)
	}
}
