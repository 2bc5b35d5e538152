package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// goodKey is the one key that the tests' servers know.
const goodKey = "key_test_pvt_known"

// edge is a handler under test with everything that it says to the outside.
type edge struct {
	*httpapi.Handler
	t        *testing.T
	log      *logBuffer
	registry *prometheus.Registry
}

// logBuffer collects the log of a server that writes from many goroutines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newEdge makes a handler with a debug log, a registry and one known key
// where o does not say otherwise.
func newEdge(t *testing.T, o httpapi.Options, routes ...httpapi.Route) *edge {
	t.Helper()
	e := &edge{t: t, log: &logBuffer{}, registry: prometheus.NewRegistry()}
	o.Logger = slog.New(slog.NewJSONHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))
	o.Metrics = e.registry
	if o.Authenticate == nil {
		o.Authenticate = func(_ context.Context, key secret.Text) (access.Caller, error) {
			if !key.Equal(secret.NewText(goodKey)) {
				return access.Caller{}, fault.New(fault.Unauthenticated, "unknown API key")
			}
			return accesstest.Caller(t, "tenant-1", "app-1"), nil
		}
	}
	e.Handler = httpapi.New(o, routes)
	return e
}

// do serves one request with headers given as name, value, name, value.
func (e *edge) do(method, target string, body io.Reader, headers ...string) *httptest.ResponseRecorder {
	e.t.Helper()
	r := httptest.NewRequest(method, target, body)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

// records returns the log records so far.
func (e *edge) records() []map[string]any {
	e.t.Helper()
	var all []map[string]any
	for line := range strings.Lines(e.log.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			e.t.Fatalf("log line %q: %v", line, err)
		}
		all = append(all, m)
	}
	return all
}

// exposition returns the metrics as Prometheus would read them.
func (e *edge) exposition() string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// problem reads a problem and checks that it is one.
func problem(t *testing.T, w *httptest.ResponseRecorder) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("body %q is not a problem: %v", w.Body, err)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type = %q, want application/json", got)
	}
	if p.Status != w.Code || p.Title == "" || p.Detail == "" {
		t.Errorf("status %d has the problem %+v", w.Code, p)
	}
	return p
}

// answer is a handler that says ok.
func answer(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
	return httpapi.WriteJSON(w, http.StatusOK, map[string]string{"said": "ok"})
}

// failing is a handler that returns an error.
func failing(err error) func(http.ResponseWriter, *http.Request, access.Caller) error {
	return func(http.ResponseWriter, *http.Request, access.Caller) error { return err }
}
