// Package httpapi is the edge of the service: it matches routes, lets callers
// in, reads JSON strictly, and turns faults into answers.
//
// It promises that every answer carries a trace id and every error has one
// shape, that one log record is written per request, and that nothing a
// caller sent is repeated in an answer, a log record or a metric. It never
// redirects, and it decides nothing about permissions: services do.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/admission"
	"github.com/tokenkeep/tokenkeep/internal/limit"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// Options are what a Handler needs. The zero value works, and lets nobody in.
type Options struct {
	HeaderPrefix string // default SVC; letters, digits and dashes
	// Authenticate finds the caller of a key. It returns faults of its own
	// (expired, not yet authorized). Nil knows no key.
	Authenticate func(ctx context.Context, key secret.Text) (access.Caller, error)
	// People are members who have signed in, and are known by a cookie. The zero
	// value knows none.
	People People
	// Ready says whether the service can do its work. Nil is always ready.
	Ready       func(ctx context.Context) error
	Logger      *slog.Logger          // default: no log
	Now         func() time.Time      // default time.Now
	Metrics     prometheus.Registerer // default: not registered anywhere
	MaxBody     int64                 // bytes of a JSON body; default 5 MiB
	MaxDepth    int                   // nesting of a JSON body; default 64
	CORSOrigins []string              // default: every origin
	RateLimits  RateLimits            // default: none
	// Memory bounds what requests in flight use together. Nil bounds nothing.
	Memory *admission.Pool
	Limits *limit.Recorder // counts limits that were reached; default: none
	// TrustedProxies are the peers whose X-Forwarded-For is believed.
	TrustedProxies []netip.Prefix
	// Refuse returns why a request is not served, whatever its row; nil where it
	// is. It is not asked about calls of code. Nil refuses nothing.
	Refuse func(r *http.Request) error
	// AdminSocket says that whoever reaches this handler is the operator. Only
	// then may it have rows of the admin socket.
	AdminSocket bool
}

// Handler serves a table of routes.
type Handler struct {
	options  Options
	routes   []Route
	root     node
	log      *slog.Logger
	now      func() time.Time
	metrics  *metrics
	cors     cors
	limits   *limits
	draining atomic.Bool

	// full header names, in canonical form
	apiKey, publicKey, traceID, idemKey string
}

// New makes a handler of the rows and of the health checks. It panics when a
// pattern is malformed or given twice and when a row says of its callers what
// cannot be meant, as these are mistakes in the program, and when the prefix
// cannot stand in a header name.
func New(o Options, routes []Route) *Handler {
	if o.HeaderPrefix == "" {
		o.HeaderPrefix = api.DefaultPrefix
	}
	o.HeaderPrefix = strings.ToUpper(o.HeaderPrefix)
	if strings.Trim(o.HeaderPrefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
		panic("httpapi: the header prefix may hold letters, digits and dashes alone")
	}
	if o.MaxBody == 0 {
		o.MaxBody = 5 << 20
	}
	if o.MaxDepth == 0 {
		o.MaxDepth = 64
	}
	h := &Handler{
		options:   o,
		log:       o.Logger,
		now:       o.Now,
		metrics:   newMetrics(o.Metrics),
		cors:      newCORS(o.HeaderPrefix, o.CORSOrigins),
		limits:    newLimits(o.RateLimits),
		apiKey:    http.CanonicalHeaderKey(api.Header(o.HeaderPrefix, api.APIKey)),
		publicKey: http.CanonicalHeaderKey(api.Header(o.HeaderPrefix, api.PublicKey)),
		traceID:   http.CanonicalHeaderKey(api.Header(o.HeaderPrefix, api.TraceID)),
		idemKey:   http.CanonicalHeaderKey(api.Header(o.HeaderPrefix, api.IdempotencyKey)),
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.now == nil {
		h.now = time.Now
	}
	h.routes = append(h.healthRoutes(), routes...)
	for i := range h.routes {
		h.routes[i].check(o.AdminSocket)
		h.root.add(&h.routes[i])
	}
	return h
}

// Routes returns all rows, the health checks among them.
func (h *Handler) Routes() []Route { return slices.Clone(h.routes) }

// Drain makes the service say that it is not ready, and asks the client of
// every further answer to close its connection. There is no way back.
func (h *Handler) Drain() { h.draining.Store(true) }

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serveAs(w, r, nil) }

// serveAs answers one request; acting is whom code acts for, and nil for
// requests that present their own key.
func (h *Handler) serveAs(w http.ResponseWriter, r *http.Request, acting *access.Caller) {
	x := h.begin(w, r)
	x.acting = acting
	defer x.end()
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if err := h.serve(x, r); err != nil {
		x.fail(r, err)
		return
	}
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
}

// match finds the row of a request; acting is whom code acts for, or nil.
func (h *Handler) match(r *http.Request, acting *access.Caller) (match, error) {
	if h.options.Refuse != nil && acting == nil {
		if err := h.options.Refuse(r); err != nil {
			return match{}, err
		}
	}
	return h.root.match(r)
}

func (h *Handler) serve(x *exchange, r *http.Request) error {
	if isPreflight(r) {
		x.route = routePreflight
		x.WriteHeader(http.StatusNoContent)
		return nil
	}
	m, noMatch := h.match(r, x.acting)
	if x.acting != nil && m.row != nil && !m.row.FromCode {
		return errNotForCode
	}
	if m.row != nil {
		x.row, x.route = m.row, m.row.Pattern
	}
	if x.row == nil || !x.row.unlimited() {
		if err := x.limitAddress(); err != nil {
			return err
		}
	}
	if x.row == nil {
		if m.allow != "" && r.Method == http.MethodOptions {
			x.Header().Set("Allow", m.allow)
			x.WriteHeader(http.StatusNoContent)
			return nil
		}
		x.allow = m.allow
		return noMatch
	}
	m.setValues(r)
	caller, err := x.callerOf(r)
	if err != nil {
		if x.row.Refused != nil {
			x.row.Refused(r, x.caller, err)
		}
		return err
	}
	if !x.row.unlimited() {
		if err := x.hold.Grow(caller.Tenant(), requestWeight); err != nil {
			return err
		}
	}
	switch x.row.Body {
	case NoBody:
		r.Body = http.NoBody
	case JSON, MergePatch:
		r.Body = http.MaxBytesReader(x, r.Body, h.options.MaxBody)
	}
	return x.row.Handle(x, r, caller)
}
