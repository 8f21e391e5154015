package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"thaw/vmm/vmmproc"
)

const transferSize = 64 << 20

var netLine = regexp.MustCompile(`(?m)^NET (\S+) (.*?)\r?$`)

// TestNetwork moves data both ways between a guest and a namespace that the
// test makes, over a tap with offloads.
func TestNetwork(t *testing.T) {
	for _, k := range kernels(t) {
		initrd := archive(t, k, map[string]string{"init": filepath.Join(bin, "runner")})
		for _, s := range []shape{{1, 512}, {2, 512}} {
			t.Run(k.Manifest.Name+"/"+s.String(), func(t *testing.T) {
				n := newNetwork(t)
				m := spec(t, k, s, initrd)
				m.Tap, m.MAC = n.tap, guestMAC
				m.Cmdline += " runner.net"
				exit := wait(t, start(t, m), 5*time.Minute)
				found := map[string]string{}
				for _, line := range netLine.FindAllSubmatch(exit.Console, -1) {
					found[string(line[1])] = string(line[2])
				}
				if received := <-n.received; received == "" || received != found["sent"] {
					t.Errorf("guest sent %q, host received %q", found["sent"], received)
				}
				if sent := <-n.sent; sent == "" || sent != found["received"] {
					t.Errorf("host sent %q, guest received %q", sent, found["received"])
				}
				if exit.Reason != vmmproc.Poweroff || t.Failed() {
					t.Errorf("machine ended: %s\n%s", exit, exit.Console)
				}
			})
		}
	}
}

// network is a namespace whose host sends and receives once.
type network struct {
	*namespace
	received, sent chan string // digests
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{namespace: newNamespace(t), received: make(chan string, 1), sent: make(chan string, 1)}
	listeners := []net.Listener{n.listen(t, 1), n.listen(t, 2)}
	go n.serve(listeners[0], n.received, func(c net.Conn, sum io.Writer) error {
		_, err := io.Copy(sum, c)
		return err
	})
	go n.serve(listeners[1], n.sent, func(c net.Conn, sum io.Writer) error {
		_, err := io.CopyN(io.MultiWriter(c, sum), rand.NewChaCha8([32]byte{2}), transferSize)
		return err
	})
	return n
}

// serve takes one connection and gives the digest of what went over it, or
// nothing when it broke.
func (n *network) serve(l net.Listener, digest chan<- string, f func(c net.Conn, sum io.Writer) error) {
	defer close(digest)
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	sum := sha256.New()
	if f(c, sum) == nil {
		digest <- hex.EncodeToString(sum.Sum(nil))
	}
}
