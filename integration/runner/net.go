package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// The network that the test makes: the host's end of the tap, and ours.
const (
	hostAddress  = "10.99.0.1"
	guestAddress = "10.99.0.2/24"
)

// transfer brings eth0 up and moves n bytes to the host's port 1 and from its
// port 2, digesting both: "NET sent DIGEST" and "NET received DIGEST".
func transfer(n int64) error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(guestAddress)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	out, err := dial("1")
	if err != nil {
		return err
	}
	sum := sha256.New()
	source := rand.NewChaCha8([32]byte{1})
	if _, err := io.CopyN(io.MultiWriter(out, sum), source, n); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	fmt.Printf("NET sent %s\n", hex.EncodeToString(sum.Sum(nil)))
	in, err := dial("2")
	if err != nil {
		return err
	}
	sum.Reset()
	if got, err := io.Copy(sum, in); err != nil || got != n {
		return fmt.Errorf("received %d of %d: %w", got, n, err)
	}
	fmt.Printf("NET received %s\n", hex.EncodeToString(sum.Sum(nil)))
	return nil
}

func dial(port string) (net.Conn, error) {
	var d net.Dialer
	d.Timeout = 20 * time.Second
	return d.Dial("tcp", net.JoinHostPort(hostAddress, port))
}

// option says whether the kernel's command line has the word.
func option(word string) bool {
	b, _ := os.ReadFile("/proc/cmdline")
	for f := range strings.FieldsSeq(string(b)) {
		if f == word {
			return true
		}
	}
	return false
}
