package sockdiag

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// countOutside counts the TCP connections that lead out of the machine from
// what every kernel tells in /proc. It is slow, and tells no socket to destroy.
func countOutside() (int, error) {
	total := 0
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return 0, fmt.Errorf("sockdiag: count connections: %w", err)
		}
		n, err := countTable(f)
		f.Close()
		if err != nil {
			return 0, fmt.Errorf("sockdiag: count connections in %s: %w", path, err)
		}
		total += n
	}
	return total, nil
}

// countTable reads a table of proc_net_tcp.rst.
func countTable(r io.Reader) (int, error) {
	n := 0
	lines := bufio.NewScanner(r)
	lines.Scan() // headings
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 {
			return 0, errors.New("line is short")
		}
		state, err := strconv.ParseUint(f[3], 16, 8)
		if err != nil {
			return 0, fmt.Errorf("state: %w", err)
		}
		if state > stateMax || connected&(1<<state) == 0 {
			continue
		}
		src, err := parseProcAddr(f[1])
		if err != nil {
			return 0, err
		}
		dst, err := parseProcAddr(f[2])
		if err != nil {
			return 0, err
		}
		if leadsOut(src, dst) {
			n++
		}
	}
	return n, lines.Err()
}

// parseProcAddr reads ADDRESS:PORT, whose address is in words of the machine's
// byte order.
func parseProcAddr(s string) (netip.Addr, error) {
	text, _, ok := strings.Cut(s, ":")
	b, err := hex.DecodeString(text)
	if !ok || err != nil || len(b) != 4 && len(b) != 16 {
		return netip.Addr{}, fmt.Errorf("address %.64q is not valid", s)
	}
	for i := 0; i < len(b); i += 4 {
		// The text is of the number, so its most significant byte is first.
		native.PutUint32(b[i:], uint32(b[i])<<24|uint32(b[i+1])<<16|uint32(b[i+2])<<8|uint32(b[i+3]))
	}
	a, _ := netip.AddrFromSlice(b)
	return a.Unmap(), nil
}
