package netconf

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Apply gives the interface the addresses and routes and brings it up, with
// rtnetlink (rtnetlink(7)). All of it is asked for with one system call.
//
// Preconditions: CAP_NET_ADMIN.
func Apply(name string, list []Address) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("netconf: find interface: %w", err)
	}
	r := requests{index: uint32(link.Index)}
	for _, a := range list {
		r.address(a.Prefix)
	}
	r.up()
	for _, a := range list {
		if a.Gateway.IsValid() {
			r.route(a.Gateway)
		}
	}
	return r.send()
}

// requests are netlink messages, each of which is to be acknowledged.
type requests struct {
	index uint32 // of the interface
	b     []byte
	what  []string // what each message, by its sequence number, is for
}

var native = binary.NativeEndian

const sizeHeader = 16 // struct nlmsghdr

// message appends a message whose payload build appends.
func (r *requests) message(what string, typ, flags uint16, build func(b []byte) []byte) {
	start := len(r.b)
	r.b = native.AppendUint32(r.b, 0) // length, see below
	r.b = native.AppendUint16(r.b, typ)
	r.b = native.AppendUint16(r.b, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	r.b = native.AppendUint32(r.b, uint32(len(r.what)))
	r.b = native.AppendUint32(r.b, 0)
	r.b = build(r.b) // a multiple of four long
	native.PutUint32(r.b[start:], uint32(len(r.b)-start))
	r.what = append(r.what, what)
}

// attribute appends a struct rtattr with a value that is a multiple of four
// long.
func attribute(b []byte, typ uint16, value []byte) []byte {
	b = native.AppendUint16(b, uint16(4+len(value)))
	b = native.AppendUint16(b, typ)
	return append(b, value...)
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// address appends a struct ifaddrmsg. No duplicate is looked for: an address of
// version 6 could not be used for a second otherwise.
func (r *requests) address(p netip.Prefix) {
	r.message("add address", unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, func(b []byte) []byte {
		b = append(b, family(p.Addr()), uint8(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE)
		b = native.AppendUint32(b, r.index)
		b = attribute(b, unix.IFA_LOCAL, p.Addr().AsSlice())
		return attribute(b, unix.IFA_ADDRESS, p.Addr().AsSlice())
	})
}

// up appends a struct ifinfomsg.
func (r *requests) up() {
	r.message("bring up", unix.RTM_NEWLINK, 0, func(b []byte) []byte {
		b = append(b, unix.AF_UNSPEC, 0, 0, 0)
		b = native.AppendUint32(b, r.index)
		b = native.AppendUint32(b, unix.IFF_UP)
		return native.AppendUint32(b, unix.IFF_UP) // which of them are meant
	})
}

// route appends a struct rtmsg for the default route.
func (r *requests) route(gateway netip.Addr) {
	r.message("add route", unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, func(b []byte) []byte {
		b = append(b, family(gateway), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST)
		b = native.AppendUint32(b, 0)
		b = attribute(b, unix.RTA_GATEWAY, gateway.AsSlice())
		return attribute(b, unix.RTA_OIF, native.AppendUint32(nil, r.index))
	})
}

// send sends all messages and reads all acknowledgements, which the kernel has
// written when the first call returns.
func (r *requests) send() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netconf: open netlink: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return fmt.Errorf("netconf: set timeout: %w", err)
	}
	if err := unix.Sendto(fd, r.b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("netconf: ask: %w", err)
	}
	buf := make([]byte, 4096)
	for answered := 0; answered < len(r.what); {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return fmt.Errorf("netconf: read answer: %w", err)
		}
		for b := buf[:n]; len(b) >= sizeHeader+4; answered++ {
			// NLMSG_ERROR: an error number, 0 for an acknowledgement, and the request.
			size, seq := native.Uint32(b), native.Uint32(b[8:])
			if native.Uint16(b[4:]) != unix.NLMSG_ERROR || seq >= uint32(len(r.what)) || size > uint32(len(b)) || size < sizeHeader+4 {
				return fmt.Errorf("netconf: answer of type %d is not understood", native.Uint16(b[4:]))
			}
			if errno := unix.Errno(-int32(native.Uint32(b[sizeHeader:]))); errno != 0 {
				return fmt.Errorf("netconf: %s: %w", r.what[seq], errno)
			}
			b = b[min((int(size)+3)&^3, len(b)):]
		}
	}
	return nil
}
