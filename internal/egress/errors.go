package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"github.com/tokenkeep/tokenkeep/internal/fault"
)

// What may go wrong on the way to a destination. They are faults, so their
// words may be shown. Causes are dropped on purpose: those of the standard
// library repeat names and addresses.
var (
	// ErrForbidden is in every refusal by the rules, at definition and at dial.
	ErrForbidden = fault.New(fault.Invalid, "the destination is not allowed")
	// ErrTimeout means that the destination took the connection and did not answer in time.
	ErrTimeout = fault.New(fault.Timeout, "the destination took too long to answer")
	// ErrNoSuchHost means that there is no address to connect to.
	ErrNoSuchHost = fault.New(fault.BadGateway, "the name of the destination does not resolve")
	// ErrConnectTimeout means that there was no connection in time; nothing was sent.
	ErrConnectTimeout = fault.New(fault.BadGateway, "the destination did not accept a connection in time")
	// ErrUnreachable means that the connection was refused or broke.
	ErrUnreachable = fault.New(fault.BadGateway, "the destination cannot be reached")
	// ErrCertificate means that the destination did not prove its name.
	ErrCertificate = fault.New(fault.BadGateway, "the certificate of the destination is not trusted")
	// ErrBroken means that an answer began and did not end.
	ErrBroken = fault.New(fault.BadGateway, "the destination broke off its answer")
)

var errNoTenant = errors.New("egress: no tenant")

// refusal is a fault of the destination with the reason that metrics count.
type refusal struct {
	*fault.Fault
	reason string
}

// Unwrap gives the fault, for its words, and ErrForbidden, for its class.
func (r *refusal) Unwrap() []error { return []error{r.Fault, ErrForbidden} }

// The refusals. Reasons are few, so that each is worth a line in a graph.
var (
	errLength    = &refusal{fault.New(fault.Invalid, "the destination must be a URL of at most 400 characters"), "url"}
	errURL       = &refusal{fault.New(fault.Invalid, "the destination must be a plain URL: a scheme, a host, a path and a query in visible ASCII"), "url"}
	errUserinfo  = &refusal{fault.New(fault.Invalid, "the destination must not hold a user name or password"), "url"}
	errFragment  = &refusal{fault.New(fault.Invalid, "the destination must not hold a fragment"), "url"}
	errScheme    = &refusal{fault.New(fault.Invalid, "the destination must begin with https://"), "scheme"}
	errAnyScheme = &refusal{fault.New(fault.Invalid, "the destination must begin with https:// or http://"), "scheme"}
	errPort      = &refusal{fault.New(fault.Invalid, "the destination must use port 443 or a port from 1024 to 65535"), "port"}
	errAnyPort   = &refusal{fault.New(fault.Invalid, "the destination must use port 80, port 443 or a port from 1024 to 65535"), "port"}
	errName      = &refusal{fault.New(fault.Invalid, "the destination must have a full DNS name as its host"), "name"}
	errInnerName = &refusal{fault.New(fault.Invalid, "the destination must not be a name of an inner network"), "name"}
	errLiteral   = &refusal{fault.New(fault.Invalid, "the destination must have a DNS name and not an address as its host"), "literal"}
	errAddress   = &refusal{fault.New(fault.Invalid, "the destination has an address that is not public"), "address"}
	errMetadata  = &refusal{fault.New(fault.Invalid, "the destination has an address that is not public"), "metadata"}
	errOwn       = &refusal{fault.New(fault.Invalid, "the destination has an address that is not public"), "own"}
)

// Errno names an error of Dial as code in a sandbox expects it.
func Errno(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrForbidden):
		return "EACCES"
	case errors.Is(err, ErrNoSuchHost):
		return "ENOTFOUND"
	case errors.Is(err, ErrConnectTimeout), errors.Is(err, ErrTimeout), errors.Is(err, context.DeadlineExceeded):
		return "ETIMEDOUT"
	default:
		return "ECONNREFUSED"
	}
}

// plain turns an error of the standard library into one of ours, or into the
// caller's own when it was the caller who gave up.
func plain(ctx context.Context, err error) error {
	var r *refusal
	if errors.As(err, &r) {
		return r // without what the standard library wrapped around it
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	for _, ours := range []error{ErrNoSuchHost, ErrConnectTimeout, ErrUnreachable} {
		if errors.Is(err, ours) {
			return ours
		}
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return ErrCertificate
	}
	if isTimeout(err) {
		return ErrConnectTimeout
	}
	return ErrUnreachable
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
