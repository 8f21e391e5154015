package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/collect"
	"thaw/broker/httpapi"
	"thaw/client"
)

// wait is long beside what a thread waits for a CPU on a busy host.
const wait = time.Second

// impatient serves with bounds that a test can wait for.
func impatient(t *testing.T, l broker.Launcher) *client.Client {
	t.Helper()
	return serveBy(t, l, func(b *broker.Broker, log *slog.Logger) *http.Server {
		return httpapi.NewImpatientServer(b, log, wait, wait)
	})
}

// slow gives one byte at a time with a pause before each.
type slow struct {
	left  int
	pause time.Duration
}

func (s *slow) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	s.left--
	time.Sleep(s.pause)
	b[0] = 'x'
	return 1, nil
}

func TestUploadThatStandsStillIsRefused(t *testing.T) {
	c := impatient(t, echo{})
	r, w := io.Pipe()
	defer w.Close()
	go io.WriteString(w, "some, and no more")
	if _, err := c.AddInput(t.Context(), r); !errors.Is(err, api.Errorf(api.CodeUploadStalled, "")) {
		t.Fatalf("got %v", err)
	}
	// One that moves may take longer than the bound, and its connection is good for more.
	in, err := c.AddInput(t.Context(), &slow{left: 10, pause: wait / 6})
	if err != nil || in.Size != 10 {
		t.Fatalf("slow upload: %+v, %v", in, err)
	}
	time.Sleep(wait + wait/3)
	if _, err := c.Info(t.Context()); err != nil {
		t.Error(err)
	}
}

// A caller that asks for much and takes nothing is cut off; the job goes on.
func TestStreamThatIsNotTakenIsCut(t *testing.T) {
	big := strings.Repeat("x", 8<<20)
	c := impatient(t, echo{
		files: []collect.File{{Path: "big", Mode: unix.S_IFREG, Size: int64(len(big)), Links: 1}}, content: map[string]string{"big": big},
	})
	j := submit(t, c, "hello")
	if _, err := c.Follow(t.Context(), j.ID, client.Watcher{}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", c.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/jobs/%s/artifacts/big HTTP/1.1\r\nHost: x\r\n\r\n", j.ID)
	time.Sleep(2 * wait)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || n >= int64(len(big)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	// A response after one that was taken has a time of its own.
	for range 2 {
		if err := c.Artifact(t.Context(), j.ID, mustManifest(t, c, j.ID)[0], io.Discard); err != nil {
			t.Error(err)
		}
		time.Sleep(wait + wait/3)
	}
}

// A quiet stream lives on: its reader takes what there is.
func TestQuietStreamLives(t *testing.T) {
	c := impatient(t, echo{})
	j := submit(t, c, "wait")
	cancelled := make(chan error, 1)
	time.AfterFunc(2*wait, func() {
		_, err := c.Cancel(t.Context(), j.ID)
		cancelled <- err
	})
	if j, err := c.Follow(t.Context(), j.ID, client.Watcher{}); err != nil || j.State != api.StateCancelled {
		t.Errorf("%s, %v", j.State, err)
	}
	if err := <-cancelled; err != nil { // the server is closed after it has answered
		t.Error(err)
	}
}

func mustManifest(t *testing.T, c *client.Client, id string) []api.Artifact {
	t.Helper()
	j, err := c.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j.Result.Artifacts
}
