package netconf

import (
	"errors"
	"net"
	"net/netip"
	"reflect"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
)

func TestParse(t *testing.T) {
	v4 := Address{Prefix: netip.MustParsePrefix("10.99.0.2/24")}
	routed := Address{Prefix: v4.Prefix, Gateway: netip.MustParseAddr("10.99.0.1")}
	v6 := Address{Prefix: netip.MustParsePrefix("fd00::2/64"), Gateway: netip.MustParseAddr("fd00::1")}
	for _, c := range []struct {
		cmdline string
		want    []Address
	}{
		{"console=ttyS0 ip=dhcp", nil},
		{"thaw.ip=10.99.0.2/24", []Address{v4}},
		{"quiet thaw.ip=10.99.0.2/24,10.99.0.1 panic=-1\n", []Address{routed}},
		{"thaw.ip=fd00::2/64,fd00::1 thaw.ip=10.99.0.2/24", []Address{v6, v4}},
	} {
		if got, err := Parse(c.cmdline); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %v, %v", c.cmdline, got, err)
		}
	}
	for _, bad := range []string{
		"", "10.99.0.2", "10.99.0.2/33", "x/24", "0.0.0.0/0", "127.0.0.1/8", "224.0.0.1/4", "::ffff:1.2.3.4/100",
		"10.99.0.2/24,", "10.99.0.2/24,x", "10.99.0.2/24,10.99.1.1", "10.99.0.2/24,10.99.0.2", "10.99.0.2/24,fd00::1",
		"fd00::2/64,fe80::1%eth0", "10.99.0.2/24 thaw.ip=10.99.0.3/24",
	} {
		if got, err := Parse(Parameter + bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("thaw.ip=10.99.0.2/24,10.99.0.1 thaw.ip=fd00::2/64")
	f.Fuzz(func(t *testing.T, cmdline string) {
		list, err := Parse(cmdline)
		if err != nil {
			return
		}
		if len(list) > 2 {
			t.Errorf("%d addresses", len(list))
		}
		for _, a := range list {
			if !a.Prefix.IsValid() || a.Gateway.IsValid() && !a.Prefix.Contains(a.Gateway) {
				t.Errorf("address %+v", a)
			}
		}
	})
}

// TestApply looks at what the kernel made of it, in a namespace of its own.
func TestApply(t *testing.T) {
	var missing error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends, the namespace with it
		ns, err := netns.New()
		if err == nil {
			defer ns.Close()
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "eth0"
			err = netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP})
		}
		if missing = err; err != nil {
			return
		}
		list, err := Parse("thaw.ip=10.99.0.2/24,10.99.0.1 thaw.ip=fd00::2/64,fd00::1")
		if err != nil {
			t.Error(err)
			return
		}
		for range 2 { // it may have them already
			if err := Apply("eth0", list); err != nil {
				t.Error(err)
			}
		}
		link, err := net.InterfaceByName("eth0")
		if err != nil || link.Flags&net.FlagUp == 0 {
			t.Errorf("interface %+v, %v", link, err)
			return
		}
		addrs, err := link.Addrs()
		got := map[string]bool{}
		for _, a := range addrs {
			got[a.String()] = true
		}
		if err != nil || !got["10.99.0.2/24"] || !got["fd00::2/64"] {
			t.Errorf("addresses %v, %v", got, err)
		}
		for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
			routes, err := netlink.RouteGet(net.ParseIP(to))
			if err != nil || len(routes) != 1 || routes[0].LinkIndex != link.Index || routes[0].Gw == nil {
				t.Errorf("route to %s: %v, %v", to, routes, err)
			}
		}
		// What the kernel refuses is told.
		bad := []Address{{Prefix: list[0].Prefix, Gateway: netip.MustParseAddr("192.0.2.1")}}
		if err := Apply("eth0", bad); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("error is %v", err)
		}
		if err := Apply("eth1", list); err == nil {
			t.Error("no such interface")
		}
	}()
	<-done
	if missing != nil {
		kvmtest.Unavailable(t, "no network namespace with a tap: %v", missing)
	}
}
