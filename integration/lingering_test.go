package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/kernel"
	"thaw/vmm/vmmproc"
)

// networked gives a machine a network and an address in it.
func networked(n *namespace) func(*vmmproc.Spec) {
	return func(m *vmmproc.Spec) {
		m.Tap, m.MAC = n.tap, guestMAC
		m.Cmdline += fmt.Sprintf(" thaw.ip=%s/24,%s", guestIP, hostIP)
	}
}

// serve handles each connection to a port of the host's end.
func (n *namespace) serve(t *testing.T, port int, handle func(c net.Conn)) {
	l := n.listen(t, port)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go handle(c)
		}
	}()
}

// serveEcho serves what connections.py dials.
func (n *namespace) serveEcho(t *testing.T) {
	n.serve(t, 1, func(c net.Conn) { io.Copy(c, c) })
	n.serve(t, 2, func(c net.Conn) { io.Copy(io.Discard, c) })
}

// TestConnectionsDoNotLinger: after a restore and after a rollback, connections
// of the guest to the outside end at once with an error, those within it and its
// listeners live on, and new ones can be made in both directions.
func TestConnectionsDoNotLinger(t *testing.T) {
	each(t, []shape{{1, 512}, {2, 3072}}, func(t *testing.T, k *kernel.Kernel, s shape) {
		c := template(t, k, s, networked(newNamespace(t)))
		first := newNamespace(t)
		first.serveEcho(t)
		b := restore(t, c, first)
		client, _, _ := b.awaken(t, 0)
		id, out := launch(t, client, "connections.py")
		out.await(t, "listening")
		first.dial(t, 8080)
		out.await(t, "up")
		// An exec that is not persistent is as good as its connection.
		lost, err := client.Exec(t.Context(), agentproto.ExecRequest{Argv: []string{"sleep", "1000"}}, agentclient.ExecIO{})
		if err != nil {
			t.Fatal(err)
		}
		freeze(t, client)
		saved := b.save(t, vmmproc.SaveSpec{Resume: true})
		if err := client.Thaw(t.Context()); err != nil {
			t.Fatal(err)
		}

		second := newNamespace(t)
		second.serveEcho(t)
		other := restore(t, saved, second)
		otherClient, _, res := other.awaken(t, 0)
		checkEnded(t, second, otherClient, id, res)

		// The machine that went on has its connections still.
		shell(t, client, "true")
		b.rollback(t, saved)
		ended := make(chan error, 1)
		go func() {
			_, err := lost.Wait()
			ended <- err
		}()
		select {
		case err := <-ended:
			if err == nil {
				t.Error("an exec of before the rollback ended in order")
			}
		case <-time.After(20 * time.Second):
			t.Error("a connection to the agent outlives a rollback")
		}
		client, _, res = b.awaken(t, 0)
		checkEnded(t, first, client, id, res)
	})
}

// checkEnded looks at what connections.py found.
func checkEnded(t *testing.T, n *namespace, c *agentclient.Client, id uint64, res agentproto.GenerationResult) {
	t.Helper()
	if !res.Frozen || res.Destroyed < 5 {
		t.Errorf("frozen %v, %d connections were ended", res.Frozen, res.Destroyed)
	}
	p := attach(t, c, id)
	// The program's last step is a connection of the host's.
	p.out.await(t, "")
	h := n.dial(t, 8080)
	_ = h.SetDeadline(time.Now().Add(20 * time.Second))
	echo := make([]byte, 5)
	if _, err := h.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(h, echo); err != nil || string(echo) != "hello" {
		t.Errorf("host connected after the restore: %q, %v", echo, err)
	}
	var found struct {
		Ends map[string]struct {
			Error string
			After float64 // seconds
		}
		Alive map[string]bool
	}
	p.result(t, &found)
	for _, name := range []string{"idle", "reading", "sending", "half closed", "incoming"} {
		end, ok := found.Ends[name]
		ok = ok && (end.Error == "ECONNABORTED" ||
			// A write after the error was read finds a closed socket. And what was
			// sent again before the generation came was refused by a host that does
			// not know the connection.
			name == "sending" && (end.Error == "EPIPE" || end.Error == "ECONNRESET"))
		if !ok || end.After > 1 {
			t.Errorf("connection %q ended with %+v", name, end)
		}
	}
	for _, name := range []string{"loopback", "own address", "listener", "new connection"} {
		if !found.Alive[name] {
			t.Errorf("%s does not work: %+v", name, found.Alive)
		}
	}
	// What depended on the old vsock connections is gone.
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		u, err := c.Usage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if u.Execs == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d execs of lost connections go on", u.Execs)
		}
	}
}

// TestGenerationNotAcknowledged: a guest that does not answer makes an error in
// bounded time, and one that does later was not thawed meanwhile.
func TestGenerationNotAcknowledged(t *testing.T) {
	k := kernels(t)[0]
	b := restore(t, template(t, k, shape{1, 512}, nil), nil)
	c := agentclient.New(b.dial)
	defer c.Close()
	set := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := c.SetGeneration(ctx, newGeneration(time.Now()))
		return err
	}
	start := time.Now()
	if err := set(time.Second); err == nil || time.Since(start) > 3*time.Second {
		t.Errorf("a machine that stands still: %v after %v", err, time.Since(start))
	}
	// Its connection is there, but it stops before the answer.
	if err := b.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := set(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	freeze(t, c)
	if err := b.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if err := set(time.Second); err == nil || time.Since(start) > 3*time.Second {
		t.Errorf("a machine that was stopped: %v after %v", err, time.Since(start))
	}
}
