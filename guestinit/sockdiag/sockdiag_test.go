package sockdiag

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
	"thaw/internal/loopback"
)

// inNamespace runs f in a network namespace with loopback and a second
// interface that has addresses of its own and one route out.
func inNamespace(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "not root")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends, and the namespace with it
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Logf("no network namespace: %v", err)
			return
		}
		if err := loopback.Up(); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// dial connects to a listener over loopback, from and to the given addresses.
// Go's resolver threads are not in the namespace, so plain system calls it is.
func dial(t *testing.T, family int, from, to unix.Sockaddr) (client, server, listener int) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	listener, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(err)
	check(unix.SetsockoptInt(listener, unix.SOL_IP, unix.IP_FREEBIND, 1))
	check(unix.Bind(listener, to))
	check(unix.Listen(listener, 1))
	addr, err := unix.Getsockname(listener)
	check(err)
	client, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(err)
	if from != nil {
		check(unix.Bind(client, from))
	}
	check(unix.Connect(client, addr))
	server, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	check(err)
	return client, server, listener
}

func sendable(fd int) error {
	_, err := unix.Write(fd, []byte("x"))
	return err
}

func TestDestroy(t *testing.T) {
	inNamespace(t, func() {
		c, err := Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if n, err := c.DestroyOutside(); n != 0 || err != nil {
			if errors.Is(err, unix.EPERM) {
				t.Logf("no CAP_NET_ADMIN: %v", err)
				return
			}
			t.Errorf("of nothing: %d, %v", n, err)
			return
		}
		lo4 := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		stay, peer, _ := dial(t, unix.AF_INET, nil, lo4)
		six, _, _ := dial(t, unix.AF_INET6, nil, &unix.SockaddrInet6{Addr: [16]byte{15: 1}})
		if n, err := c.DestroyOutside(); n != 0 || err != nil {
			t.Errorf("of loopback: %d, %v", n, err)
		}
		for _, fd := range []int{stay, six} {
			if err := sendable(fd); err != nil {
				t.Errorf("loopback connection: %v", err)
			}
		}
		if err := sendable(peer); err != nil {
			t.Errorf("accepted connection: %v", err)
		}
	})
}

// Connections that lead out end with an error at once; IPv4, IPv6 and UDP.
func TestDestroyOutside(t *testing.T) {
	inNamespace(t, func() {
		c, err := Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		// A dummy interface would need a module; an address on lo that is not
		// in 127/8 looks just like one outside to who connects from 127.0.0.1.
		if err := addAddress("10.9.8.7"); err != nil {
			t.Errorf("add address: %v", err)
			return
		}
		far := &unix.SockaddrInet4{Addr: [4]byte{10, 9, 8, 7}}
		near := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		out, _, listener := dial(t, unix.AF_INET, near, far)
		own, _, _ := dial(t, unix.AF_INET, far, far) // both ends have the machine's address
		mapped, _, _ := dial(t, unix.AF_INET6, &unix.SockaddrInet6{Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()},
			&unix.SockaddrInet6{Addr: netip.MustParseAddr("::ffff:10.9.8.7").As16()})
		udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(unix.Bind(udp, near), unix.Connect(udp, &unix.SockaddrInet4{Port: 9, Addr: far.Addr})); err != nil {
			t.Error(err)
		}
		n, err := c.DestroyOutside()
		if err != nil {
			t.Errorf("destroy: %v", err)
		}
		// Of the two TCP connections the far ends lead to 127.0.0.1 and stay.
		if n != 3 {
			t.Errorf("%d were destroyed, want 3", n)
		}
		for name, fd := range map[string]int{"tcp4": out, "mapped": mapped} {
			if err := sendable(fd); err == nil {
				t.Errorf("%s still sends", name)
			}
			if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || v == 0 && sendable(fd) == nil {
				t.Errorf("%s has no error: %d, %v", name, v, err)
			}
		}
		if err := sendable(own); err != nil {
			t.Errorf("connection to the machine's own address: %v", err)
		}
		if _, err := unix.Getsockname(listener); err != nil {
			t.Errorf("listener: %v", err)
		}
		if n, err := c.DestroyOutside(); n != 0 || err != nil {
			t.Errorf("again: %d, %v", n, err)
		}
	})
}

// More connections than one batch holds.
func TestDestroyMany(t *testing.T) {
	inNamespace(t, func() {
		c, err := Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if err := addAddress("10.9.8.7"); err != nil {
			t.Errorf("add address: %v", err)
			return
		}
		const many = batch + 44
		near := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
		for range many {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
				return
			}
			defer unix.Close(fd)
			if err := errors.Join(unix.Bind(fd, near), unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{10, 9, 8, 7}})); err != nil {
				t.Error(err)
				return
			}
		}
		start := time.Now()
		n, err := c.DestroyOutside()
		if n != many || err != nil {
			t.Errorf("%d of %d were destroyed, %v", n, many, err)
		}
		t.Logf("%d sockets in %v", n, time.Since(start))
	})
}

func addAddress(addr string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo:1")
	if err != nil {
		return err
	}
	ip := net.ParseIP(addr).To4()
	if err := req.SetInet4Addr(ip); err != nil {
		return err
	}
	return unix.IoctlIfreq(fd, unix.SIOCSIFADDR, req)
}

// A kernel that cannot destroy is not enough if there is something to
// destroy.
func TestWithoutDiagnosis(t *testing.T) {
	for _, c := range []struct {
		name string
		left int
		want error
	}{{"none", 0, nil}, {"some", 2, ErrLingering}} {
		t.Run(c.name, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fds[1])
			conn := &Conn{fd: fds[0], in: make([]byte, 4096), proc: func() (int, error) { return c.left, nil }}
			defer conn.Close()
			for seq := range uint32(3) { // TCP, and UDP twice
				b := header(nil, 4, unix.NLMSG_ERROR, 0, seq+1)
				b = native.AppendUint32(b, uint32(0x100000000-int64(unix.ENOENT)))
				if _, err := unix.Write(fds[1], b); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := conn.DestroyOutside(); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("error is %v", err)
			}
		})
	}
}

func TestCountTable(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue\n"
	for _, c := range []struct {
		name, table string
		want        int
		bad         bool
	}{
		{"empty", head, 0, false},
		{"listener", head + " 0: 00000000:1F90 00000000:0000 0A 0:0\n", 0, false},
		{"loopback", head + " 0: 0100007F:1F90 0100007F:0001 01 0:0\n", 0, false},
		{"own address", head + " 0: 0708090A:1F90 0708090A:0001 01 0:0\n", 0, false},
		{"outside", head + " 0: 0708090A:1F90 08080808:01BB 01 0:0\n", 1, false},
		{"time wait", head + " 0: 0708090A:1F90 08080808:01BB 06 0:0\n", 1, false},
		{"six", head + " 0: 00000000000000000000000001000000:1F90 B80D0120000000000000000001000000:01BB 01 0:0\n", 1, false},
		{"six loopback", head + " 0: 00000000000000000000000001000000:1F90 00000000000000000000000001000000:01BB 01 0:0\n", 0, false},
		{"mapped loopback", head + " 0: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:01BB 01 0:0\n", 0, false},
		{"short", head + " 0: 00000000:1F90\n", 0, true},
		{"bad address", head + " 0: 000000:1F90 00000000:0000 01 0\n", 0, true},
		{"bad state", head + " 0: 00000000:1F90 00000000:0000 XX 0\n", 0, true},
	} {
		n, err := countTable(strings.NewReader(c.table))
		if n != c.want || (err != nil) != c.bad {
			t.Errorf("%s: %d, %v", c.name, n, err)
		}
	}
	if n, err := countOutside(); err != nil {
		t.Error(n, err)
	}
}

func FuzzAnswer(f *testing.F) {
	p := peer{family: unix.AF_INET, state: stateEstablished}
	f.Add(destroy(dump(dumpTCP(nil, 1, connected), 2, unix.AF_INET6, unix.IPPROTO_UDP, 2), 3, unix.NLM_F_ACK, &p))
	f.Add(native.AppendUint32(header(nil, 4, unix.NLMSG_ERROR, 0, 1), 0))
	f.Add(header(nil, 0, unix.NLMSG_DONE, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			m, rest, err := next(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("no progress")
			}
			if p, err := parsePeer(m.payload, 6); err == nil {
				p.outside()
			}
			m.errno()
			b = rest
		}
	})
}

func FuzzTable(f *testing.F) {
	f.Add("head\n 0: 0708090A:1F90 08080808:01BB 06 0:0\n")
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = countTable(io.LimitReader(strings.NewReader(s), 1<<16))
	})
}

func BenchmarkNothingToDestroy(b *testing.B) {
	c, err := Open()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		if _, err := c.list(unix.IPPROTO_TCP, func(b []byte, seq uint32) []byte { return dumpTCP(b, seq, 0) }); err != nil {
			b.Fatal(err)
		}
	}
}
