package egress

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"code.dny.dev/ssrf"
)

// metadata are the addresses at which clouds hand credentials to whoever asks
// from inside. No setting opens them: an operator who opens fd00::/8 or
// 100.64.0.0/10 does not mean these. One of them is a public address.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),         // link-local: AWS, Azure, Google and most others
	netip.MustParsePrefix("fe80::/10"),              // link-local: OpenStack
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS
	netip.MustParsePrefix("fd20:ce::/32"),           // Google
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
}

var (
	shared    = netip.MustParsePrefix("100.64.0.0/10")
	broadcast = netip.MustParseAddr("255.255.255.255")
	guardian  = ssrf.New(ssrf.WithAnyPort())
)

func isIn(a netip.Addr, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// address judges one address. named says that the operator opened the name
// that led to it: such a name may have a private address, and no other special
// one.
func (p *policy) address(a netip.Addr, named bool) error {
	switch {
	case !a.IsValid(), a.Zone() != "", a.Is4In6():
		return errAddress // resolve has unmapped what was mapped
	case isIn(a, metadata):
		return errMetadata
	case a.IsUnspecified(), a.IsMulticast(), a == broadcast:
		return errAddress
	case ssrf.IPv6NAT64Prefix.Contains(a) && p.isOpen(a):
		// A machine that has IPv6 alone reaches all of IPv4 through this
		// network. Opening it opens the way, not what lies behind.
		bytes := a.As16()
		return p.address(netip.AddrFrom4([4]byte(bytes[12:])), named)
	case p.isOpen(a):
		return nil
	case named && (a.IsPrivate() || shared.Contains(a)):
		return nil
	case isISATAP(a), guardian.SafeAddr(a) != nil:
		return errAddress
	}
	return nil
}

func (p *policy) isOpen(a netip.Addr) bool { return isIn(a, p.networks) }

// isISATAP tells an address whose last half is 0:5efe or 200:5efe and an IPv4
// address (RFC 5214): a machine with such a tunnel sends it to that address.
func isISATAP(a netip.Addr) bool {
	if !a.Is6() {
		return false
	}
	b := a.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// machine is what belongs to this server, at the moment of a dial.
type machine struct {
	own   []netip.AddrPort
	local map[netip.Addr]bool
}

func (e *Egress) machine() (machine, error) {
	list, err := e.interfaces()
	if err != nil {
		return machine{}, errors.New("egress: list the addresses of this machine")
	}
	m := machine{own: e.own(), local: make(map[netip.Addr]bool, len(list))}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				m.local[ip.Unmap()] = true
			}
		}
	}
	return m, nil
}

// isOwn tells a listener of this server. It stays shut in every network: a
// request that comes back in would pass for one from this machine.
func (m machine) isOwn(to netip.AddrPort) bool {
	a := to.Addr()
	for _, o := range m.own {
		if o.Port() != 0 && o.Port() != to.Port() {
			continue
		}
		listener := o.Addr().Unmap()
		if listener.WithZone("") == a || listener.IsUnspecified() && (a.IsLoopback() || m.local[a]) {
			return true
		}
	}
	return false
}

// judge decides on one address and port, with all that is known.
func (e *Egress) judge(m machine, to netip.AddrPort, named bool) error {
	if !e.policy.port(to.Port()) {
		return e.policy.badPort()
	}
	if err := e.policy.address(to.Addr(), named); err != nil {
		return err
	}
	if m.isOwn(to) || m.local[to.Addr()] && !e.policy.isOpen(to.Addr()) {
		return errOwn
	}
	return nil
}
