package guesttest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// files checks put, get and list, and that none of them leaves /workspace.
func (s *suite) files(t *testing.T) {
	ctx := context.Background()
	put := func(path string, mode uint32, b []byte) error {
		return s.c.PutFile(ctx, path, mode, int64(len(b)), bytes.NewReader(b))
	}
	get := func(path string, max int64) (string, agentproto.FileInfo, error) {
		var b bytes.Buffer
		info, err := s.c.GetFile(ctx, path, &b, max)
		return b.String(), info, err
	}
	t.Run("RoundTrip", func(t *testing.T) {
		big := make([]byte, 3<<20+17)
		rand.Read(big)
		for name, content := range map[string][]byte{"f/empty": nil, "f/small": []byte("small"), "f/deep/er/big": big} {
			if err := put(name, 0o640, content); err != nil {
				t.Fatal(err)
			}
			got, info, err := get(name, 4<<20)
			if err != nil || got != string(content) {
				t.Fatalf("%s: %d bytes, %v", name, len(got), err)
			}
			if info.Mode != 0o640 || info.UID != agentproto.DefaultID || info.Size != int64(len(content)) || info.Nlink != 1 {
				t.Errorf("%s: %+v", name, info)
			}
		}
		s.shell(t, "echo more >>f/small && mkdir f/deep/mine && test -O f/deep/er && cat f/small")
	})
	t.Run("UnknownSize", func(t *testing.T) {
		if err := s.c.PutFile(ctx, "f/unknown", 0o600, -1, strings.NewReader("abc")); err != nil {
			t.Fatal(err)
		}
		if got, _, err := get("f/unknown", 10); got != "abc" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("Overwrite", func(t *testing.T) {
		for _, content := range []string{"a longer content", "short"} {
			if err := put("f/over", 0o600, []byte(content)); err != nil {
				t.Fatal(err)
			}
			if got, _, _ := get("f/over", 100); got != content {
				t.Errorf("%q", got)
			}
		}
	})
	t.Run("ModeIsMasked", func(t *testing.T) {
		if err := put("f/suid", 0o4777, nil); err != nil {
			t.Fatal(err)
		}
		if _, info, _ := get("f/suid", 10); info.Mode != 0o777 {
			t.Errorf("mode is %o", info.Mode)
		}
	})
	t.Run("Failures", s.fileFailures)
	t.Run("SourceFails", func(t *testing.T) {
		src := io.MultiReader(strings.NewReader("part"), failingReader{})
		if err := s.c.PutFile(ctx, "f/half", 0o600, -1, src); err == nil || !strings.Contains(err.Error(), "source broke") {
			t.Errorf("error is %v", err)
		}
		if _, _, err := get("f/half", 10); !errors.Is(err, agentproto.ErrNotFound) {
			t.Errorf("a part is left: %v", err)
		}
	})
	t.Run("WrongSize", func(t *testing.T) {
		for _, size := range []int64{1, 9} {
			if err := s.c.PutFile(ctx, "f/wrong", 0o600, size, strings.NewReader("four")); !errors.Is(err, agentproto.ErrBadRequest) {
				t.Errorf("size %d: %v", size, err)
			}
		}
	})
	t.Run("List", s.list)
	t.Run("NoTemporaries", func(t *testing.T) {
		files, err := s.c.ListFiles(ctx, "f", 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if strings.Contains(f.Path, ".put-") {
				t.Errorf("%s is left", f.Path)
			}
		}
	})
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("source broke") }

func (s *suite) fileFailures(t *testing.T) {
	ctx := context.Background()
	s.shell(t, `mkdir -p e/dir && cd e && ln -sf /etc etc && ln -sf /etc/passwd passwd && ln -sf .. up && ln -sf nowhere dangling &&
		ln -sf /proc/self/root root && rm -f pipe && mkfifo pipe && echo file >file`)
	for _, c := range []struct {
		path     string
		put, get error
	}{
		{"../escape", agentproto.ErrBadRequest, agentproto.ErrBadRequest},
		{"e/../../escape", agentproto.ErrBadRequest, agentproto.ErrBadRequest},
		{"/etc/passwd", agentproto.ErrBadRequest, agentproto.ErrBadRequest},
		{"", agentproto.ErrBadRequest, agentproto.ErrBadRequest},
		{"a\x00b", agentproto.ErrBadRequest, agentproto.ErrBadRequest},
		{strings.Repeat("n", 256), agentproto.ErrBadRequest, agentproto.ErrBadRequest},
		{"e/etc/passwd", agentproto.ErrSymlink, agentproto.ErrSymlink},
		{"e/up/up/x", agentproto.ErrSymlink, agentproto.ErrSymlink},
		{"e/root/etc/passwd", agentproto.ErrSymlink, agentproto.ErrSymlink},
		{"e/dir", agentproto.ErrNotRegular, agentproto.ErrNotRegular},
		{"e/file/below", agentproto.ErrNotFound, agentproto.ErrNotFound},
		{"e/passwd", nil, agentproto.ErrNotRegular}, // put replaces the link
		{"e/dangling", nil, agentproto.ErrNotRegular},
		{"e/pipe", nil, agentproto.ErrNotRegular},
		{"e/nothing", nil, agentproto.ErrNotFound},
	} {
		t.Run(fmt.Sprintf("%.20q", c.path), func(t *testing.T) {
			if _, err := s.c.GetFile(ctx, c.path, io.Discard, 1<<20); !errors.Is(err, c.get) {
				t.Errorf("get: %v, want %v", err, c.get)
			}
			err := s.c.PutFile(ctx, c.path, 0o600, 1, strings.NewReader("x"))
			if c.put == nil && err != nil || c.put != nil && !errors.Is(err, c.put) {
				t.Errorf("put: %v, want %v", err, c.put)
			}
		})
	}
	t.Run("TooLarge", func(t *testing.T) {
		if _, err := s.c.GetFile(ctx, "e/file", io.Discard, 4); !errors.Is(err, agentproto.ErrTooLarge) {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("ListThroughLink", func(t *testing.T) {
		for _, dir := range []string{"e/etc", "e/up", "e/root"} {
			if _, err := s.c.ListFiles(ctx, dir, 10); !errors.Is(err, agentproto.ErrSymlink) && !errors.Is(err, agentproto.ErrNotFound) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	})
}

func (s *suite) list(t *testing.T) {
	ctx := context.Background()
	s.shell(t, `rm -rf l && mkdir -p l/a/b l/z && cd l && echo 12345 >a/f && ln a/f hard && ln -s /etc link && mkfifo a/pipe &&
		dd if=/dev/null of=sparse bs=1 seek=10000000 2>/dev/null && touch a/b/"$(printf '\377\nx')" && chmod 4755 a/f`)
	files, err := s.c.ListFiles(ctx, "l", 100)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range files {
		fmt.Fprintf(&got, "%q %s %d\n", f.Path, f.Type, f.Nlink)
	}
	want := `"l/a" dir 3
"l/a/b" dir 2
"l/a/b/\xff\nx" file 1
"l/a/f" file 2
"l/a/pipe" fifo 1
"l/hard" file 2
"l/link" symlink 1
"l/sparse" file 1
"l/z" dir 2
`
	if got.String() != want {
		t.Errorf("listing is\n%swant\n%s", got.String(), want)
	}
	for _, f := range files {
		switch f.Path {
		case "l/a/f":
			if f.Size != 6 || f.Mode != 0o4755 {
				t.Errorf("%+v", f)
			}
		case "l/sparse":
			if f.Size != 10000000 || f.Blocks*512 > 65536 {
				t.Errorf("%+v", f)
			}
		}
	}
	t.Run("CountBound", func(t *testing.T) {
		some, err := s.c.ListFiles(ctx, "l", 3)
		if !errors.Is(err, agentclient.ErrTruncated) || len(some) != 3 {
			t.Errorf("%d entries, %v", len(some), err)
		}
	})
	t.Run("DepthBound", func(t *testing.T) {
		s.shell(t, "rm -rf d && mkdir d && cd d && i=0; while [ $i -lt 60 ]; do mkdir x && cd x; i=$((i+1)); done")
		some, err := s.c.ListFiles(ctx, "d", 1000)
		if !errors.Is(err, agentclient.ErrTruncated) || len(some) != agentproto.MaxListDepth {
			t.Errorf("%d entries, %v", len(some), err)
		}
	})
	t.Run("Many", func(t *testing.T) {
		s.shell(t, "rm -rf m && mkdir m && cd m && i=0; while [ $i -lt 2000 ]; do : >a-rather-long-name-of-a-file-$i; i=$((i+1)); done")
		all, err := s.c.ListFiles(ctx, "m", 5000)
		if err != nil || len(all) != 2000 {
			t.Errorf("%d entries, %v", len(all), err)
		}
	})
	s.shell(t, "rm -rf l d m")
}

// diskFull fills the disk, which needs a small one.
func (s *suite) diskFull(t *testing.T) {
	s.needMachine(t)
	ctx := context.Background()
	defer s.shell(t, "rm -f big")
	r := s.run(t, sh("dd if=/dev/zero of=big bs=1048576"), "")
	r.want(t, agentproto.CauseDiskFull)
	if !r.DiskFull {
		t.Error("the disk is not seen to be full")
	}
	// The agent works on, jobs too, and a success is a success.
	if r := s.run(t, sh("echo ok"), ""); r.out != "ok\n" || r.Cause != agentproto.CauseExited || !r.DiskFull {
		t.Errorf("%+v", r)
	}
	if err := s.c.PutFile(ctx, "more", 0o600, 1<<20, io.LimitReader(zeros{}, 1<<20)); !errors.Is(err, agentproto.ErrNoSpace) {
		t.Errorf("put: %v", err)
	}
	s.shell(t, "rm -f big")
	u, err := s.c.Usage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{u.DiskTotal + 1<<20, -1} {
		err := s.c.PutFile(ctx, "huge", 0o600, size, io.LimitReader(zeros{}, u.DiskTotal+1<<20))
		if !errors.Is(err, agentproto.ErrNoSpace) {
			t.Errorf("put of more than the disk holds (size %d): %v", size, err)
		}
	}
	if files, err := s.c.ListFiles(ctx, "", 100000); err != nil {
		t.Error(err)
	} else {
		for _, f := range files {
			if f.Path == "huge" || strings.Contains(f.Path, ".put-") {
				t.Errorf("%s is left", f.Path)
			}
		}
	}
}

// reaping: orphans do not stay as zombies.
func (s *suite) reaping(t *testing.T) {
	s.needMachine(t)
	s.shell(t, "i=0; while [ $i -lt 50 ]; do (sh -c 'exit 0' &) ; i=$((i+1)); done; sleep 0.3")
	u, err := s.c.Usage(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if u.PidsNow > 5 {
		t.Errorf("%d processes are left of 50 orphans", u.PidsNow)
	}
}
