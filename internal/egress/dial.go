package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// maxTries bounds how many addresses of a name are dialled. All are checked.
const maxTries = 8

// Dial opens a plain connection for code of a tenant: what goes over it, TLS
// included, is that code's own affair. host is a name or an address without
// brackets. Errno names the errors.
func (e *Egress) Dial(ctx context.Context, tenant, host string, port uint16) (net.Conn, error) {
	if tenant == "" {
		return nil, errNoTenant
	}
	return e.dial(ctx, host, port)
}

func (e *Egress) dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	c, err := e.connect(ctx, host, port)
	if err != nil {
		err = e.refused(plain(caller, err))
	}
	e.metrics.dialled(err)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (e *Egress) connect(ctx context.Context, host string, port uint16) (net.Conn, error) {
	// The form of an address decides, as there are no brackets to go by.
	literal, err := netip.ParseAddr(host)
	host, err = e.policy.host(host, err == nil && literal.Is6())
	if err != nil {
		return nil, err
	}
	named := e.policy.isNamed(host)
	list, err := e.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	m, err := e.machine()
	if err != nil {
		return nil, err
	}
	// One bad address refuses them all. A name with a public and an inner
	// address is an attack or a mistake, and whoever could make us skip the
	// good one would choose which is dialled.
	for _, a := range list {
		if err := e.judge(m, netip.AddrPortFrom(a, port), named); err != nil {
			return nil, err
		}
	}
	var last error
	for i, a := range list[:min(len(list), maxTries)] {
		c, err := e.try(ctx, netip.AddrPortFrom(a, port), named, min(len(list), maxTries)-i)
		if err == nil {
			return c, nil
		}
		last = err
		if ctx.Err() != nil || errors.Is(err, ErrForbidden) {
			break
		}
	}
	return nil, last
}

// resolve gives every address of a host, looked up once.
func (e *Egress) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	list, err := e.resolver.LookupNetIP(ctx, "ip", host+".")
	switch {
	case err != nil && (isTimeout(err) || ctx.Err() != nil):
		return nil, ErrConnectTimeout
	case err != nil || len(list) == 0:
		return nil, ErrNoSuchHost
	}
	for i, a := range list {
		list[i] = a.Unmap() // Go's resolver gives mapped addresses for plain IPv4 ones too
	}
	return list, nil
}

// try dials one checked address, in its share of the time that is left.
func (e *Egress) try(ctx context.Context, to netip.AddrPort, named bool, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	d := net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		// The last word, on the address that the kernel is about to get.
		if actual, err := netip.ParseAddrPort(address); err != nil || actual != to {
			return errAddress
		}
		m, err := e.machine()
		if err != nil {
			return err
		}
		if err := e.judge(m, to, named); err != nil {
			return err
		}
		e.metrics.attempts.Inc()
		return nil
	}}
	c, err := d.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	e.metrics.connections.Inc()
	return &conn{TCPConn: c.(*net.TCPConn), closed: sync.OnceFunc(e.metrics.connections.Dec)}, nil
}

// conn counts itself out once. It is still a TCP connection to io.Copy, which
// hands the bytes of sandboxed code over inside the kernel.
type conn struct {
	*net.TCPConn
	closed func()
}

func (c *conn) Close() error {
	c.closed()
	return c.TCPConn.Close()
}
