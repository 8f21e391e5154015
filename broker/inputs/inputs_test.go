package inputs

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

func open(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.TempDir()+"/in", o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func files(t *testing.T, s *Store) int {
	t.Helper()
	e, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

var roomy = Options{MaxBytes: 100, MaxTenantBytes: 1000, MaxTenantFiles: 10, TTL: time.Hour}

func TestAddAndRead(t *testing.T) {
	s := open(t, roomy)
	in, err := s.Add("a", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	if in.Size != 5 || in.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Errorf("%+v", in)
	}
	f, err := s.Open(in.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, _ := io.ReadAll(f); string(b) != "hello" {
		t.Errorf("read %q", b)
	}
}

func TestAHandleIsNotPermission(t *testing.T) {
	s := open(t, roomy)
	in, _ := s.Add("a", strings.NewReader("x"))
	if _, err := s.Pin("b", in.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another tenant pins: %v", err)
	}
	if err := s.Remove("b", in.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("another tenant removes: %v", err)
	}
	if _, err := s.Pin("a", "../"+in.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("made-up handle: %v", err)
	}
}

func TestBounds(t *testing.T) {
	s := open(t, Options{MaxBytes: 10, MaxTenantBytes: 15, MaxTenantFiles: 3, TTL: time.Hour})
	if _, err := s.Add("a", strings.NewReader(strings.Repeat("x", 11))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := s.Add("a", iotest.ErrReader(errors.New("gone"))); err == nil {
		t.Error("a broken upload is stored")
	}
	if n := files(t, s); n != 0 || len(s.held) != 0 {
		t.Fatalf("refused inputs leave %d files, quota %v", n, s.held)
	}
	if _, err := s.Add("a", strings.NewReader(strings.Repeat("x", 10))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Add("a", strings.NewReader(strings.Repeat("x", 6))); !errors.Is(err, ErrQuota) {
		t.Errorf("over quota: %v", err)
	}
	if _, err := s.Add("b", strings.NewReader(strings.Repeat("x", 6))); err != nil {
		t.Errorf("another tenant's quota is touched: %v", err)
	}
}

func TestExpiryAndPins(t *testing.T) {
	s := open(t, roomy)
	a, _ := s.Add("a", strings.NewReader("a"))
	b, _ := s.Add("a", strings.NewReader("b"))
	if _, err := s.Pin("a", a.ID); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.expire(time.Now().Add(2 * time.Hour))
	s.mu.Unlock()
	if _, err := s.Open(b.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("expired input: %v", err)
	}
	f, err := s.Open(a.ID)
	if err != nil {
		t.Fatalf("pinned input: %v", err)
	}
	f.Close()
	if err := s.Remove("a", a.ID); err != nil || files(t, s) != 1 {
		t.Errorf("remove while pinned: %v, %d files", err, files(t, s))
	}
	if _, err := s.Pin("a", a.ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("removed input: %v", err)
	}
	s.Unpin(a.ID)
	if files(t, s) != 0 {
		t.Errorf("%d files left", files(t, s))
	}
}

// Nobody has to come for an input to expire.
func TestExpiryNeedsNoUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, roomy)
		defer s.Close()
		pinned, err := s.Add("a", strings.NewReader("p"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Pin("a", pinned.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Add("a", strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(roomy.TTL)
		synctest.Wait()
		if n := files(t, s); n != 2 {
			t.Errorf("%d files before their time", n)
		}
		time.Sleep(sweepEvery + time.Second)
		synctest.Wait()
		if n := files(t, s); n != 1 {
			t.Errorf("%d files when one is pinned", n)
		}
		s.Unpin(pinned.ID)
		time.Sleep(roomy.TTL + sweepEvery + time.Second)
		synctest.Wait()
		if n := files(t, s); n != 0 || s.sweep != nil {
			t.Errorf("%d files in the end, timer %v", n, s.sweep)
		}
	})
}

func TestOpenEmptiesTheStore(t *testing.T) {
	s := open(t, roomy)
	if _, err := s.Add("a", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.dir, roomy)
	if err != nil || files(t, again) != 0 {
		t.Errorf("%v, %d files", err, files(t, again))
	}
}
