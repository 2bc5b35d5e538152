package server

import (
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/tokenkeep/tokenkeep/internal/limit"
)

// mostConnections is how many connections are accepted at most where no setting
// gives a number.
const mostConnections = 10_000

// connections is a listener that bounds how many connections are open at once,
// in all and from one address. A connection beyond a bound is closed as soon as
// it is accepted, so that it does not wait in the kernel in front of others.
type connections struct {
	net.Listener
	most, perAddress int // perAddress is 0 for no limit
	exempt           []netip.Prefix
	limits           *limit.Recorder

	mu        sync.Mutex // guards all below
	open      int
	addresses map[netip.Prefix]int
}

// bounded puts the configured bounds in front of a listener.
func (s *Server) bounded(l net.Listener) net.Listener {
	most := s.config.Connections
	if most == 0 {
		most = defaultConnections()
	}
	return newConnections(l, most, s.config.ConnectionsPerAddress, s.config.TrustedProxies, s.limits)
}

func newConnections(l net.Listener, most, perAddress int, exempt []netip.Prefix, limits *limit.Recorder) *connections {
	return &connections{
		Listener: l, most: most, perAddress: min(perAddress, max(1, most/2)), exempt: exempt, limits: limits, addresses: make(map[netip.Prefix]int),
	}
}

// defaultConnections leaves files for the store, destinations and code.
func defaultConnections() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return mostConnections
	}
	return int(min(mostConnections, max(16, files.Cur/4*3)))
}

// Accept returns the next connection within the bounds.
func (l *connections) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		network := networkOf(c.RemoteAddr())
		if reached := l.enter(network); reached != "" {
			l.limits.Reached(reached)
			_ = c.Close()
			continue
		}
		return &connection{Conn: c, leave: sync.OnceFunc(func() { l.leave(network) })}, nil
	}
}

// networkOf is what of an address is counted: all of an IPv4 address, the /64
// of an IPv6 one. It is not valid for other sockets.
func networkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits)
	return p
}

// enter counts a connection, or returns the limit that it would exceed.
func (l *connections) enter(network netip.Prefix) limit.Name {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.most {
		return limit.Connections
	}
	if l.perAddress > 0 && !l.isExempt(network) && l.addresses[network] >= l.perAddress {
		return limit.AddressConnections
	}
	l.open++
	l.addresses[network]++
	return ""
}

func (l *connections) leave(network netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.addresses[network]--; l.addresses[network] == 0 {
		delete(l.addresses, network)
	}
}

func (l *connections) isExempt(network netip.Prefix) bool {
	if !network.IsValid() {
		return true
	}
	for _, p := range l.exempt {
		if p.Overlaps(network) {
			return true
		}
	}
	return false
}

// connection is a connection that is counted until it is closed.
type connection struct {
	net.Conn
	leave func()
}

func (c *connection) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite ends one direction: a response to a request that was not read to
// its end must reach the client before the connection is reset.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
