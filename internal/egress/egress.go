// Package egress is the only way out to an address that a tenant chose:
// destinations of proxies, callbacks of reactors, connections of sandboxed code.
//
// It promises that a name is resolved once, that every address it resolves to
// is checked, and that exactly a checked address is dialled: nothing of the
// operator's own network is reached unless a setting opens it. Connections are
// reused for one tenant and never for another. It never follows a redirect,
// never reads a proxy from the environment, and never repeats a URL, a name or
// an address in an error.
package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The bounds of a connection on its way up, and of the wait for an answer.
const (
	DialTimeout      = 8 * time.Second // look-up and connection together
	TLSTimeout       = 8 * time.Second
	FirstByteTimeout = 25 * time.Second
)

// Resolver looks names up. *net.Resolver is one; tests bring others. It is
// asked for absolute names, with the dot at the end, so that no search domain
// of the machine turns a tenant's name into an inner one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Settings are the operator's. The zero value opens public addresses over
// https and nothing else.
type Settings struct {
	AllowHTTP     bool           // destinations may be http://, and port 80 is open
	AllowHosts    []string       // names that may resolve to private addresses; *.name stands for all below it
	AllowNetworks []netip.Prefix // networks that are open whoever names them
	AllowPorts    []uint16       // ports that are open beside 443 and those from 1024 on
	CAFile        string         // PEM file of authorities that are trusted beside the system's
	Dev           bool           // opens loopback and http, on a developer's machine

	// OwnAddresses are those at which this server itself can be reached. They
	// stay shut even in an open network. Port 0 stands for every port, an
	// unspecified address for every address of the machine. It is asked at
	// every dial, as listeners may come up later than this package.
	OwnAddresses func() []netip.AddrPort

	Resolver Resolver              // default: Go's own, which behaves the same in every build
	Metrics  prometheus.Registerer // default: not registered anywhere
}

// Egress dials for tenants. It is safe for concurrent use.
type Egress struct {
	policy   policy
	resolver Resolver
	roots    *x509.CertPool
	metrics  *metrics
	pools    pools

	own        func() []netip.AddrPort
	interfaces func() ([]net.Addr, error)
}

// New checks the settings and reads the CA file.
func New(s Settings) (*Egress, error) {
	p, err := newPolicy(s)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("egress: read the system's certificate authorities: %w", err)
	}
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("egress: read the file of certificate authorities: %w", errors.Unwrap(err))
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, errors.New("egress: the file of certificate authorities holds no certificate in PEM")
		}
	}
	// What fails here would refuse every dial later, with no word to the operator.
	if _, err := net.InterfaceAddrs(); err != nil {
		return nil, fmt.Errorf("egress: list the addresses of this machine: %w", err)
	}
	e := &Egress{
		policy:     p,
		resolver:   s.Resolver,
		roots:      roots,
		metrics:    newMetrics(s.Metrics),
		own:        s.OwnAddresses,
		interfaces: net.InterfaceAddrs,
	}
	if e.resolver == nil {
		e.resolver = newSystemResolver()
	}
	if e.own == nil {
		e.own = func() []netip.AddrPort { return nil }
	}
	return e, nil
}

// Close lets go of every idle connection. Requests under way go on.
func (e *Egress) Close() { e.pools.close() }
