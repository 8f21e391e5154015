// Package netconf gives the guest's network interface the addresses that the
// kernel's command line names. There is no DHCP: every machine has the same
// address in a network namespace of its own on the host, so a fork needs no
// new one.
package netconf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Parameter is the command line's word for one address: ADDRESS/PREFIX, and
// after a comma the address of the gateway, if there is one. It may occur once
// for each family.
const Parameter = "thaw.ip="

// Address is one address of the interface.
type Address struct {
	Prefix  netip.Prefix // with the host's bits
	Gateway netip.Addr   // of the default route; not valid: none
}

// Parse finds the addresses on a command line.
func Parse(cmdline string) ([]Address, error) {
	var list []Address
	for word := range strings.FieldsSeq(cmdline) {
		value, ok := strings.CutPrefix(word, Parameter)
		if !ok {
			continue
		}
		a, err := parse(value)
		if err != nil {
			return nil, fmt.Errorf("netconf: %.100q: %w", word, err)
		}
		for _, other := range list {
			if other.Prefix.Addr().Is4() == a.Prefix.Addr().Is4() {
				return nil, fmt.Errorf("netconf: %.100q: second address of its family", word)
			}
		}
		list = append(list, a)
	}
	return list, nil
}

func parse(value string) (a Address, err error) {
	address, gateway, routed := strings.Cut(value, ",")
	if a.Prefix, err = netip.ParsePrefix(address); err != nil {
		return a, err
	}
	if own := a.Prefix.Addr(); own.Is4In6() || own.IsUnspecified() || own.IsLoopback() || own.IsMulticast() {
		return a, errors.New("not an interface's address")
	}
	if !routed {
		return a, nil
	}
	if a.Gateway, err = netip.ParseAddr(gateway); err != nil {
		return a, err
	}
	// Without a zone: there is one interface.
	if a.Gateway.Zone() != "" || a.Gateway == a.Prefix.Addr() || !a.Prefix.Contains(a.Gateway) {
		return a, errors.New("gateway is not a neighbour")
	}
	return a, nil
}
