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

// Who says who may call a row. The zero value asks for a key.
type Who int

// The callers of rows.
const (
	AnyKey Who = iota // whoever presents a valid key
	Open              // anybody; the handler gets the zero Caller
)

// Body says what a row reads. The zero value reads nothing.
type Body int

// The bodies of rows.
const (
	NoBody     Body = iota // whatever is sent is not read
	JSON                   // application/json, bounded, read by Decode
	MergePatch             // application/merge-patch+json, bounded, read by Decode
	Raw                    // the handler reads r.Body itself, under its own bounds
)

// Readers says which web pages may read the responses of a row. The zero value
// lets those of the setting cors_origins.
type Readers int

// The readers of rows.
const (
	ConfiguredPages Readers = iota
	EveryPage               // public files that pages load with an integrity hash
	NoPage                  // documents that browsers show
)

// Route is one row of the API.
type Route struct {
	// Pattern is a method and a path: "DELETE /tokens/{id}". The method "*" is
	// any method. {name} is one segment, not empty, and is decoded once for
	// r.PathValue. {name...} comes last and is everything that follows, as it
	// was sent: "/proxy/{rest...}" has the rest "" for /proxy, "/a%2Fb/" for
	// /proxy/a%2Fb/.
	Pattern string
	Who     Who
	// Permission is what the service behind the row asks of the caller; in
	// parentheses where that is no permission. It is written here for reviewers
	// and for the test of all permissions.
	Permission string
	// FromCode rows may be called by code of tenants, in the name of the
	// application that it acts for; see As. For such code the others do not exist.
	FromCode bool
	Body     Body
	// Idempotent rows take the idempotency header; see IdempotencyKey.
	Idempotent bool
	Handle     func(w http.ResponseWriter, r *http.Request, c access.Caller) error

	Readers Readers
	// Operator rows are for health checks and metrics: they have no CORS
	// headers, so that no web page reads them, and no rate limits.
	Operator bool
	// Problem gives the errors of this row another shape. Nil leaves it.
	Problem func(api.Problem) any
}

// Options are what a Handler needs. The zero value works, and lets nobody in.
type Options struct {
	HeaderPrefix string // default SVC; letters, digits and dashes
	// Authenticate finds the caller of a key. It returns faults of its own
	// (expired, not yet authorized). Nil knows no key.
	Authenticate func(ctx context.Context, key secret.Text) (access.Caller, error)
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
// pattern is malformed or given twice, as both are mistakes in the program,
// and when the prefix cannot stand in a header name.
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
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := h.begin(w, r)
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

func (h *Handler) serve(x *exchange, r *http.Request) error {
	if isPreflight(r) {
		x.route = routePreflight
		x.WriteHeader(http.StatusNoContent)
		return nil
	}
	m, noMatch := h.root.match(r)
	if _, acting := r.Context().Value(actingKey{}).(access.Caller); acting && m.row != nil && !m.row.FromCode {
		return errNotForCode
	}
	if m.row != nil {
		x.row, x.route = m.row, m.row.Pattern
	}
	if x.row == nil || !x.row.Operator {
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
	var caller access.Caller
	if x.row.Who != Open {
		var err error
		if caller, err = x.authenticate(r); err != nil {
			return err
		}
	}
	if !x.row.Operator {
		if err := x.hold.Grow(caller.Tenant(), requestWeight); err != nil {
			return err
		}
	}
	m.setValues(r)
	switch x.row.Body {
	case NoBody:
		r.Body = http.NoBody
	case JSON, MergePatch:
		r.Body = http.MaxBytesReader(x, r.Body, h.options.MaxBody)
	}
	return x.row.Handle(x, r, caller)
}
