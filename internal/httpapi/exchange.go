package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/admission"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/luhn"
)

// LevelAlarm is the level of what somebody must look at: a panic.
const LevelAlarm = slog.LevelError + 4

// Routes of requests that have no row, in log records and metrics.
const (
	routeUnmatched = "unmatched"
	routePreflight = "preflight"
)

type exchangeKey struct{}

var errNoExchange = errors.New("httpapi: called outside a request of a Handler")

// exchange is one request and its answer: the ResponseWriter that handlers
// see, and all that the log record will say.
type exchange struct {
	handler *Handler
	out     http.ResponseWriter
	ctx     context.Context
	started time.Time
	method  string // from knownMethod
	trace   string
	origin  string // the caller's, compared and never repeated
	client  netip.Addr
	route   string
	row     *Route
	caller  access.Caller
	acting  *access.Caller // whom code acts for; see As
	before  http.Header    // what stood in the answer before the handler ran

	closing  bool            // the connection is not fit for another request
	allow    string          // the Allow header of a 405
	run      string          // the id of the run of code that the answer came from
	hold     *admission.Hold // the memory of the request
	policies []string
	quotas   []string
	// limited reports whether the rate limits of public keys and sessions hold
	// for the caller, public whether it has a public key.
	limited, public bool
	limitedAs       client

	status int // 0 until the answer has begun
	bytes  int64
	kind   string // of the fault
	cause  error  // of an internal error
	stack  string // of a panic
	panic  string
}

func (h *Handler) begin(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{
		handler: h,
		out:     w,
		ctx:     r.Context(),
		started: h.now(),
		method:  knownMethod(r.Method),
		trace:   traceOf(r.Header.Values(h.traceID)),
		origin:  r.Header.Get("Origin"),
		client:  clientAddr(r, h.options.TrustedProxies),
		route:   routeUnmatched,
		before:  maps.Clone(w.Header()),
		hold:    h.options.Memory.Open(),
	}
	h.metrics.inFlight.Inc()
	x.setDefaults()
	return x
}

// policy is for answers that are no documents: a browser that shows one as a
// document anyway runs and loads nothing, and no page can embed it.
const policy = "default-src 'none'; frame-ancestors 'none'; sandbox"

// setDefaults sets what every answer has unless the handler knows better.
func (x *exchange) setDefaults() {
	h := x.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", policy)
	h.Set("Origin-Agent-Cluster", "?1")
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// prefixOf returns the prefix of our headers on the response that w writes.
func prefixOf(w http.ResponseWriter) string {
	if x, ok := w.(*exchange); ok {
		return x.handler.options.HeaderPrefix
	}
	return api.DefaultPrefix
}

// HeaderName returns the name of a header of ours under this server's prefix.
func HeaderName(ctx context.Context, name string) string {
	prefix := api.DefaultPrefix
	if x := exchangeOf(ctx); x != nil {
		prefix = x.handler.options.HeaderPrefix
	}
	return api.Header(prefix, name)
}

// TraceID returns the trace id of the request that ctx belongs to.
func TraceID(ctx context.Context) string {
	if x := exchangeOf(ctx); x != nil {
		return x.trace
	}
	return ""
}

// NoteRun names the run of code that a response comes from, in a header, whatever
// the response is.
func NoteRun(ctx context.Context, id string) {
	if x := exchangeOf(ctx); x != nil {
		x.run = id
	}
}

// Close makes the connection of a request end with its answer, because the
// request was not read to its end.
func Close(r *http.Request) {
	if x := exchangeOf(r.Context()); x != nil {
		x.closing = true
	}
}

// ClientAddr returns the address of the client of the request that ctx
// belongs to, behind trusted proxies. It is not valid outside a request.
func ClientAddr(ctx context.Context) netip.Addr {
	if x := exchangeOf(ctx); x != nil {
		return x.client
	}
	return netip.Addr{}
}

func (x *exchange) Header() http.Header { return x.out.Header() }

// WriteHeader begins the answer. The headers that are ours alone are set here,
// so that a handler which copies another server's headers cannot change them.
func (x *exchange) WriteHeader(status int) {
	if x.status != 0 {
		return
	}
	if status >= 100 && status < 200 && status != http.StatusSwitchingProtocols {
		x.out.WriteHeader(status)
		return
	}
	header := x.Header()
	header.Set(x.handler.traceID, x.trace)
	if x.run != "" {
		header.Set(api.Header(x.handler.options.HeaderPrefix, api.RunID), x.run)
	}
	switch {
	case x.row == nil || !x.row.noCORS() && x.row.Readers == ConfiguredPages:
		x.handler.cors.stamp(header, x.origin, x.route == routePreflight)
	case x.row.Readers == EveryPage:
		header.Set("Access-Control-Allow-Origin", "*")
	}
	if len(x.policies) > 0 {
		header.Set("RateLimit-Policy", strings.Join(x.policies, ", "))
		header.Set("RateLimit", strings.Join(x.quotas, ", "))
	}
	if x.closing || x.handler.draining.Load() {
		header.Set("Connection", "close")
	}
	x.out.WriteHeader(status) // panics on a status that is none
	x.status = status
}

func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	n, err := x.out.Write(b)
	if x.method != http.MethodHead {
		x.bytes += int64(n)
	}
	return n, err
}

// showQuota sets what the RateLimit headers say of one limit.
func (x *exchange) showQuota(policy, quota string) {
	for i, p := range x.policies {
		if p == policy {
			x.quotas[i] = quota
			return
		}
	}
	x.policies, x.quotas = append(x.policies, policy), append(x.quotas, quota)
}

// FlushError sends what was written so far; http.ResponseController calls it.
func (x *exchange) FlushError() error {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(x.out).Flush()
}

// Unwrap lets http.ResponseController set deadlines.
func (x *exchange) Unwrap() http.ResponseWriter { return x.out }

// end writes the one log record of the request. It must be deferred itself,
// because it recovers.
func (x *exchange) end() {
	recovered := recover()
	defer x.hold.Close()
	abort := recovered == http.ErrAbortHandler //nolint:errorlint // a panic value, compared as net/http does
	if recovered != nil && !abort {
		x.handler.metrics.panics.Inc()
		x.kind, x.panic, x.stack = fault.Internal.Error(), panicText(recovered), stackOf()
		if x.status == 0 {
			x.writeProblem(fault.Internal)
		} else {
			abort = true // half an answer must not look like a whole one
		}
	}
	x.record()
	if abort {
		panic(http.ErrAbortHandler)
	}
}

// fail answers with a problem, or breaks the connection when the answer has
// already begun.
func (x *exchange) fail(r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		err = errClientGone
	}
	f := fault.Of(err)
	if x.kind = f.Kind().Error(); f.Kind() == fault.Internal {
		x.cause = err
	}
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	x.writeProblem(err)
}

func (x *exchange) record() {
	took := x.handler.now().Sub(x.started)
	x.handler.metrics.observe(x, took)

	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("trace_id", x.trace),
		slog.String("route", x.route),
		slog.String("method", x.method),
		slog.Int("status", x.status),
		slog.Int64("bytes", x.bytes),
		slog.Duration("duration", took),
		slog.String("client", x.client.String()),
	}
	if x.caller.Tenant() != "" {
		attrs = append(attrs, slog.String("tenant", x.caller.Tenant()), slog.String("application", x.caller.Application()))
	}
	if x.kind != "" {
		attrs = append(attrs, slog.String("fault", x.kind))
	}
	if x.cause != nil {
		level = slog.LevelError
		attrs = append(attrs, slog.String("error", internalText(x.cause)))
	}
	if x.stack != "" {
		level = LevelAlarm
		attrs = append(attrs, slog.String("panic", x.panic), slog.String("stack", x.stack))
	}
	x.handler.log.LogAttrs(x.ctx, level, "request", attrs...)
}

// internalText is the one way for the text of an error into the log. It is
// for errors that are not faults, and rests on a rule of this program: an
// internal error says what we were doing and never holds what a user sent.
// Whoever wraps an error of a library that quotes its input drops that text
// first. As a last resort, a text with a card number in it is not shown.
func internalText(err error) string {
	if s := err.Error(); !luhn.HasCard(s) {
		return s
	}
	return "withheld: the error's text holds a card number"
}

// panicText never shows what a panic was called with, which may be data. The
// runtime's own errors (an index out of range) speak of types and lengths.
func panicText(recovered any) string {
	err, ok := recovered.(runtime.Error)
	if !ok {
		return "withheld: not an error of the runtime"
	}
	return internalText(err)
}

// stackOf names the functions and lines that led here. debug.Stack would also
// print their arguments.
func stackOf() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var b strings.Builder
	for {
		f, more := frames.Next()
		b.WriteString(f.Function + " " + f.File + ":" + strconv.Itoa(f.Line) + "\n")
		if !more {
			return b.String()
		}
	}
}

// knownMethod keeps what callers invent out of log records and metrics.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "OTHER"
}
