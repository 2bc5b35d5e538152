package httpapi

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

var (
	errNoKey      = fault.New(fault.Unauthenticated, "an API key is required")
	errManyKeys   = fault.New(fault.Unauthenticated, "more than one API key was sent")
	errUnknownKey = fault.New(fault.Unauthenticated, "the API key is not known")
	errForeign    = fault.New(fault.Forbidden, "the session was made by another application").WithCode("foreign_session")
	errNotForCode = fault.New(fault.NotFound, "there is no such resource for code")
	errIdemKey    = fault.New(fault.Invalid, "the idempotency key must be 1 to 200 printable characters")
)

// Authenticate finds the caller of a request by its key. Rows do so before
// their handler runs; only the handler of an Anonymous row, which learns late
// whether a key is due, calls it.
func Authenticate(r *http.Request) (access.Caller, error) {
	x := exchangeOf(r.Context())
	if x == nil {
		return access.Caller{}, errNoExchange
	}
	return x.authenticate(r)
}

// As serves the rows with FromCode as one caller, whatever key a request
// carries: for code of a tenant, which acts in the name of an application and
// never has its key. Other rows are not there: with sessions or keys such code
// could outlive its run.
func (h *Handler) As(c access.Caller) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set(h.traceID, c.Origin().TraceID)
		// What code calls counts for whoever called the code.
		r.RemoteAddr = c.Origin().Address
		r.Header.Del("X-Forwarded-For")
		h.serveAs(w, r, &c)
	})
}

// callerOf finds the caller of a row in the way that the row says.
func (x *exchange) callerOf(r *http.Request) (access.Caller, error) {
	switch x.row.Auth {
	case APIKey, PublicKey, PrivateKey:
		return x.authenticate(r)
	case AdminSocket, Anonymous:
		return access.Caller{}, nil
	}
	return access.Caller{}, errRefused
}

func (x *exchange) authenticate(r *http.Request) (access.Caller, error) {
	if x.acting != nil {
		// The rate limits are those of the request that ran the code.
		c := *x.acting
		c = c.WithOrigin(access.Origin{TraceID: c.Origin().TraceID, Address: c.Origin().Address, Meter: meter{x}})
		x.caller = c
		return c, nil
	}
	values := r.Header.Values(x.handler.apiKey)
	switch {
	case (len(values) == 0 || len(values) == 1 && values[0] == "") && x.row.Auth == APIKey:
		return x.authenticatePerson(r)
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return access.Caller{}, errNoKey
	case len(values) > 1:
		return access.Caller{}, errManyKeys
	case x.handler.options.Authenticate == nil:
		return access.Caller{}, errUnknownKey
	}
	c, err := x.handler.options.Authenticate(r.Context(), secret.NewText(values[0]))
	if err != nil {
		return access.Caller{}, err
	}
	if c.Tenant() == "" {
		return access.Caller{}, errUnknownKey
	}
	c = c.WithOrigin(x.originOf())
	x.caller = c
	if err := x.limitKey(values[0], c); err != nil {
		return access.Caller{}, err
	}
	if err := x.checkPublicKey(r, c); err != nil {
		return access.Caller{}, err
	}
	return c, nil
}

// checkPublicKey refuses a caller that is neither the application of the public
// key in the request nor one of its sessions. Pages hand sessions to fields, and
// the fields name their own key: what is typed into them must not end up with
// another application.
func (x *exchange) checkPublicKey(r *http.Request, c access.Caller) error {
	values := r.Header.Values(x.handler.publicKey)
	if len(values) == 0 {
		return nil
	}
	foreign := access.Refuse(x.row.Permission, errForeign)
	if len(values) > 1 {
		return foreign
	}
	owner, err := x.handler.options.Authenticate(r.Context(), secret.NewText(values[0]))
	if errors.Is(err, fault.Unauthenticated) || errors.Is(err, fault.Forbidden) {
		return foreign
	}
	if err != nil {
		return err
	}
	if owner.RequireType(access.Public) != nil || owner.Tenant() != c.Tenant() || owner.Application() != c.Application() {
		return foreign
	}
	return nil
}

// IdempotencyKey returns the idempotency key of a request; "" when there is
// none or its row takes none.
func IdempotencyKey(r *http.Request) (string, error) {
	x := exchangeOf(r.Context())
	if x == nil {
		return "", errNoExchange
	}
	values := r.Header.Values(x.handler.idemKey)
	if len(values) == 0 || !x.row.Idempotent {
		return "", nil
	}
	key := values[0]
	printable := !strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsPrint(c) })
	if len(values) > 1 || key == "" || !utf8.ValidString(key) || utf8.RuneCountInString(key) > 200 || !printable {
		return "", errIdemKey
	}
	return key, nil
}

// traceOf takes the caller's trace id when it is well formed and cannot be a
// card number, and makes one otherwise.
func traceOf(values []string) string {
	if len(values) == 1 && len(values[0]) <= 128 && values[0] != "" &&
		strings.Trim(values[0], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" &&
		!luhn.HasCard(values[0]) {
		return values[0]
	}
	return access.NewID()
}

// clientAddr returns the address of the client. X-Forwarded-For is read from
// the right, where each trusted proxy has written down its own peer: the first
// address that is not a trusted proxy is the client's, and what stands left of
// it is hearsay.
func clientAddr(r *http.Request, trusted []netip.Prefix) netip.Addr {
	addr := parseAddr(r.RemoteAddr)
	hops := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	for hops != "" && isTrusted(addr, trusted) {
		i := strings.LastIndexByte(hops, ',')
		next := parseAddr(strings.TrimSpace(hops[i+1:]))
		if !next.IsValid() {
			break
		}
		addr, hops = next, hops[:max(i, 0)]
	}
	return addr
}

func isTrusted(addr netip.Addr, trusted []netip.Prefix) bool {
	for _, p := range trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// parseAddr reads an address with or without a port.
func parseAddr(s string) netip.Addr {
	addr, err := netip.ParseAddr(s)
	if err != nil {
		withPort, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone("")
}
