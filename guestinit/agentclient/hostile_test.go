package agentclient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// deafGuest starts an exec and reads nothing from then on.
func deafGuest(t *testing.T) *agentclient.Client {
	t.Helper()
	return agentclient.New(func(context.Context) (net.Conn, error) {
		host, far := net.Pipe()
		go func() {
			if _, err := agentproto.NewReader(far).Next(); err != nil {
				t.Error(err)
			}
			answer := &wire{t: t}
			_, _ = far.Write(answer.msg(agentproto.FrameStarted, agentproto.Started{PID: 1}).b)
		}()
		return host, nil
	})
}

// A guest that does not read must not hold up who wants to end its program.
func TestDeafGuest(t *testing.T) {
	for name, end := range map[string]func(*agentclient.Process, context.CancelFunc) error{
		"signal": func(p *agentclient.Process, _ context.CancelFunc) error {
			if err := p.Signal(15); !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("signal: %w", err)
			}
			return nil
		},
		"cancel":  func(p *agentclient.Process, _ context.CancelFunc) error { p.Cancel(); return nil },
		"context": func(_ *agentclient.Process, cancel context.CancelFunc) error { cancel(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := deafGuest(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p, err := c.Exec(ctx, agentproto.ExecRequest{Argv: []string{"x"}}, agentclient.ExecIO{})
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				if err := end(p, cancel); err != nil {
					t.Error(err)
				}
				if _, err := p.Wait(); err == nil {
					t.Error("the exec ended in order")
				}
				if took := time.Since(begin); took > 10*time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

// The same with standard input that the guest does not take. In real time: who
// waits for a lock does not let a bubble's clock go on.
func TestDeafGuestWithInput(t *testing.T) {
	t.Parallel()
	c := deafGuest(t)
	p, err := c.Exec(t.Context(), agentproto.ExecRequest{Argv: []string{"x"}}, agentclient.ExecIO{Stdin: strings.NewReader("input")})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // stdin is being written
	if err := p.Signal(9); err == nil {
		t.Error("signal was delivered")
	}
	if _, err := p.Wait(); err == nil {
		t.Error("the exec ended in order")
	}
}

// A listing of few entries may still be one of many bytes.
func TestListOfLongPaths(t *testing.T) {
	path := strings.Repeat(strings.Repeat("x", agentproto.MaxName)+"/", 2*agentproto.MaxPath/(agentproto.MaxName+1)-1) + "x"
	answer := &wire{t: t}
	const entries = 4000
	for range entries {
		answer.msg(agentproto.FrameEntries, agentproto.Entries{Files: []agentproto.FileInfo{{Path: path, Type: agentproto.TypeFile}}})
	}
	answer.msg(agentproto.FrameOK, agentproto.ListEnd{})
	files, err := guest(t, answer.b).ListFiles(t.Context(), "", entries)
	if !errors.Is(err, agentclient.ErrTruncated) || len(files) != 16<<20/len(path) {
		t.Errorf("%d entries, %v", len(files), err)
	}
}
