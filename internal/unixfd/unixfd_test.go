package unixfd

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pair(t *testing.T, kind Kind) (*os.File, *os.File) {
	t.Helper()
	a, b, err := Pair(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func openFiles(t *testing.T, n int) []*os.File {
	t.Helper()
	var files []*os.File
	for range n {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		files = append(files, f)
	}
	return files
}

func countFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestRoundTrip(t *testing.T) {
	for _, kind := range []Kind{Stream, SeqPacket} {
		for _, files := range []int{0, 1, 2, 7, MaxFiles} {
			a, b := pair(t, kind)
			if err := Send(a, []byte("hello"), openFiles(t, files)...); err != nil {
				t.Fatalf("kind %d, %d files: %v", kind, files, err)
			}
			buf := make([]byte, 16)
			n, got, err := Recv(b, buf, MaxFiles)
			if err != nil || string(buf[:n]) != "hello" || len(got) != files {
				t.Fatalf("kind %d: got %q, %d files, %v; want hello, %d files", kind, buf[:n], len(got), err, files)
			}
			for _, f := range got {
				fd, err := Number(f)
				if err != nil {
					t.Fatal(err)
				}
				if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Fatalf("received descriptor is not close-on-exec (flags %#x, %v)", flags, err)
				}
				f.Close()
			}
		}
	}
}

func TestRefusedMessagesCloseTheirFiles(t *testing.T) {
	for _, tc := range []struct {
		name           string
		bytes, files   int
		buf, takeFiles int
		want           error
	}{
		{"too long", 32, 3, 16, 8, ErrTruncated},
		{"no files taken", 4, 3, 16, 0, ErrTooManyFiles},
		{"one file more, within alignment", 4, 2, 16, 1, ErrTooManyFiles},
		{"many files more", 4, 40, 16, 3, ErrTooManyFiles},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := pair(t, SeqPacket)
			if err := Send(a, make([]byte, tc.bytes), openFiles(t, tc.files)...); err != nil {
				t.Fatal(err)
			}
			before := countFDs(t)
			_, files, err := Recv(b, make([]byte, tc.buf), tc.takeFiles)
			var bad *MessageError
			if !errors.Is(err, tc.want) || !errors.As(err, &bad) || files != nil {
				t.Fatalf("got %v with %d files, want %v", err, len(files), tc.want)
			}
			if after := countFDs(t); after != before {
				t.Fatalf("descriptors leaked: %d before, %d after", before, after)
			}
			// The connection is still good for the next message.
			if err := Send(a, []byte("next")); err != nil {
				t.Fatal(err)
			}
			if n, _, err := Recv(b, make([]byte, 16), 0); n != 4 || err != nil {
				t.Fatalf("next message: %d bytes, %v", n, err)
			}
		})
	}
}

func TestCredentialsAreRefused(t *testing.T) {
	a, b := pair(t, SeqPacket)
	fd, err := Number(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		t.Fatal(err)
	}
	if err := Send(a, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Recv(b, make([]byte, 8), 16); !errors.Is(err, ErrUnexpectedControl) {
		t.Fatalf("got %v, want %v", err, ErrUnexpectedControl)
	}
}

func TestBounds(t *testing.T) {
	a, b := pair(t, SeqPacket)
	if err := Send(a, nil); err == nil {
		t.Error("an empty message was sent")
	}
	if err := Send(a, []byte("x"), make([]*os.File, MaxFiles+1)...); !errors.Is(err, ErrTooManyFiles) {
		t.Errorf("got %v, want %v", err, ErrTooManyFiles)
	}
	for _, bad := range [][2]int{{0, 0}, {8, -1}, {8, MaxFiles + 1}} {
		if _, _, err := Recv(b, make([]byte, bad[0]), bad[1]); err == nil {
			t.Errorf("Recv with %d bytes and %d files did not fail", bad[0], bad[1])
		}
	}
	closed := openFiles(t, 1)[0]
	closed.Close()
	if err := Send(a, []byte("x"), closed); err == nil {
		t.Error("a closed file was sent")
	}
}

func TestEOFAndDeadline(t *testing.T) {
	a, b := pair(t, SeqPacket)
	b.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, _, err := Recv(b, make([]byte, 8), 1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v, want a deadline error", err)
	}
	b.SetReadDeadline(time.Time{})
	a.Close()
	if _, _, err := Recv(b, make([]byte, 8), 1); err != io.EOF {
		t.Fatalf("got %v, want EOF", err)
	}
	if err := Send(b, []byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("got %v, want EPIPE", err)
	}
}

// A stream message longer than the socket's buffer is written in parts; its descriptors arrive once, with the first.
func TestLongStreamMessage(t *testing.T) {
	conn, b, err := PairConn(Stream)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer b.Close()
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	sent := make(chan error, 1)
	go func() { sent <- Send(conn, want, openFiles(t, 2)...) }()

	var got []byte
	files := 0
	buf := make([]byte, 64<<10)
	for len(got) < len(want) {
		n, fs, err := Recv(b, buf, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fs {
			files++
			f.Close()
		}
		got = append(got, buf[:n]...)
	}
	if err := <-sent; err != nil || files != 2 || !bytes.Equal(got, want) {
		t.Fatalf("send: %v; %d files (want 2); bytes equal: %v", err, files, bytes.Equal(got, want))
	}
}

// Passing a socket must leave it usable by the sender's poller: Send may not switch it to blocking mode.
func TestSendKeepsNonBlocking(t *testing.T) {
	a, _ := pair(t, SeqPacket)
	passed, _ := pair(t, Stream)
	if err := Send(a, []byte("x"), passed); err != nil {
		t.Fatal(err)
	}
	fd, err := Number(passed)
	if err != nil {
		t.Fatal(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Fatalf("descriptor became blocking: flags %#x, %v", flags, err)
	}
}

func FuzzParseRights(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, oob []byte) {
		fds, err := parseRights(oob)
		if len(fds) > len(oob)/4 {
			t.Fatalf("%d descriptors out of %d bytes (%v)", len(fds), len(oob), err)
		}
	})
}
