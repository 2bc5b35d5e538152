package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestTraceIDsAreTakenWhenWellFormedAndMadeOtherwise(t *testing.T) {
	e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		w.Header().Set("SVC-TRACE-ID", "of-the-handler")
		w.Header().Set("X-Seen", httpapi.TraceID(r.Context()))
		return nil
	}})
	for name, tt := range map[string]struct {
		sent  []string
		taken bool
	}{
		"none":                    {nil, false},
		"one":                     {[]string{"Abc_1.2-3"}, true},
		"one character":           {[]string{"a"}, true},
		"128 characters":          {[]string{strings.Repeat("a", 128)}, true},
		"129 characters":          {[]string{strings.Repeat("a", 129)}, false},
		"empty":                   {[]string{""}, false},
		"two":                     {[]string{"a", "b"}, false},
		"a space inside":          {[]string{"a b"}, false},
		"a slash":                 {[]string{"a/b"}, false},
		"another script":          {[]string{"añb"}, false},
		"a newline":               {[]string{"a\nb"}, false},
		"a card number":           {[]string{planted}, false},
		"a card number inside":    {[]string{"req-" + planted + "-1"}, false},
		"digits that are no card": {[]string{"424242424241"}, true},
		"a uuid":                  {[]string{"0b94a2d9-7a27-4a43-9a41-2ff6b0b4d9f3"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var headers []string
			for _, s := range tt.sent {
				headers = append(headers, "SVC-TRACE-ID", s)
			}
			w := e.do("GET", "/x", nil, headers...)
			got := w.Header().Values("SVC-TRACE-ID")
			if len(got) != 1 || got[0] != w.Header().Get("X-Seen") {
				t.Fatalf("trace ids %q, the handler saw %q", got, w.Header().Get("X-Seen"))
			}
			if tt.taken != (len(tt.sent) > 0 && got[0] == tt.sent[0]) || !tt.taken && !uuid4.MatchString(got[0]) {
				t.Errorf("trace id for %q = %q, want it taken: %v", tt.sent, got[0], tt.taken)
			}
		})
	}
}

func TestThePrefixNamesEveryHeader(t *testing.T) {
	e := newEdge(t, httpapi.Options{HeaderPrefix: "bt"}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.APIKey, Handle: answer})
	w := e.do("GET", "/x", nil, "BT-API-KEY", goodKey, "BT-TRACE-ID", "t-1")
	if w.Code != 200 || w.Header().Get("BT-TRACE-ID") != "t-1" || w.Header().Get("SVC-TRACE-ID") != "" ||
		!strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), "BT-PROXY-DESTINATION-STATUS") {
		t.Errorf("GET /x = %d %v, want 200 under the prefix BT", w.Code, w.Header())
	}
	if w := e.do("GET", "/x", nil, "SVC-API-KEY", goodKey); w.Code != 401 {
		t.Errorf("a key under another prefix = %d, want 401", w.Code)
	}
	defer func() {
		if recover() == nil {
			t.Error("New accepted a prefix with a space")
		}
	}()
	httpapi.New(httpapi.Options{HeaderPrefix: "A B"}, nil)
}

func TestRowsLetOnlyKnownCallersIn(t *testing.T) {
	var seen access.Caller
	show := func(_ http.ResponseWriter, _ *http.Request, c access.Caller) error { seen = c; return nil }
	late := func(_ http.ResponseWriter, r *http.Request, _ access.Caller) (err error) {
		seen, err = httpapi.Authenticate(r)
		return err
	}
	rows := []httpapi.Route{
		{Pattern: "GET /keyed", Auth: httpapi.APIKey, Handle: show},
		{Pattern: "GET /open", Auth: httpapi.Anonymous, Handle: show},
		{Pattern: "GET /late", Auth: httpapi.Anonymous, Handle: late},
	}
	known := func(tenant string, err error) func(context.Context, secret.Text) (access.Caller, error) {
		return func(context.Context, secret.Text) (access.Caller, error) {
			return accesstest.Caller(t, tenant, "app-1"), err
		}
	}
	key := []string{"SVC-API-KEY", goodKey}
	for name, tt := range map[string]struct {
		authenticate func(context.Context, secret.Text) (access.Caller, error)
		path         string
		headers      []string
		status       int
		tenant       string
	}{
		"a good key":             {nil, "/keyed", key, 200, "tenant-1"},
		"no key":                 {nil, "/keyed", nil, 401, ""},
		"an empty key":           {nil, "/keyed", []string{"SVC-API-KEY", ""}, 401, ""},
		"an unknown key":         {nil, "/keyed", []string{"SVC-API-KEY", "no"}, 401, ""},
		"two keys":               {nil, "/keyed", append(key, key...), 401, ""},
		"two keys, one empty":    {nil, "/keyed", append(key, "SVC-API-KEY", ""), 401, ""},
		"a key in the wrong one": {nil, "/keyed", []string{"Authorization", goodKey}, 401, ""},
		"a caller of no tenant":  {known("", nil), "/keyed", key, 401, ""},
		"not yet authorized":     {known("t", fault.New(fault.Forbidden, "no")), "/keyed", key, 403, ""},
		"the store is down":      {known("t", errors.New("store")), "/keyed", key, 500, ""},
		"open without a key":     {nil, "/open", nil, 200, ""},
		"open with a bad key":    {nil, "/open", []string{"SVC-API-KEY", "no"}, 200, ""},
		"open with a good key":   {nil, "/open", key, 200, ""},
		"late without a key":     {nil, "/late", nil, 401, ""},
		"late with a good key":   {nil, "/late", key, 200, "tenant-1"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, httpapi.Options{Authenticate: tt.authenticate}, rows...)
			seen = access.Caller{}
			if w := e.do("GET", tt.path, nil, tt.headers...); w.Code != tt.status || seen.Tenant() != tt.tenant {
				t.Errorf("GET %s = %d for tenant %q, want %d for %q", tt.path, w.Code, seen.Tenant(), tt.status, tt.tenant)
			}
			if strings.Contains(e.log.String(), goodKey) {
				t.Error("the log holds the key")
			}
		})
	}
	t.Run("no way to authenticate", func(t *testing.T) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/keyed", nil)
		r.Header.Set("SVC-API-KEY", goodKey)
		httpapi.New(httpapi.Options{}, rows).ServeHTTP(w, r)
		if w.Code != 401 {
			t.Errorf("GET /keyed = %d, want 401", w.Code)
		}
	})
}

func TestIdempotencyKeysArePrintable(t *testing.T) {
	var got string
	read := func(_ http.ResponseWriter, r *http.Request, _ access.Caller) (err error) {
		got, err = httpapi.IdempotencyKey(r)
		return err
	}
	e := newEdge(t, httpapi.Options{},
		httpapi.Route{Pattern: "POST /x", Auth: httpapi.Anonymous, Idempotent: true, Handle: read},
		httpapi.Route{Pattern: "POST /y", Auth: httpapi.Anonymous, Handle: read})
	for name, tt := range map[string]struct {
		path   string
		sent   []string
		status int
		want   string
	}{
		"none":                     {"/x", nil, 200, ""},
		"one":                      {"/x", []string{"a b-1"}, 200, "a b-1"},
		"200 characters":           {"/x", []string{strings.Repeat("é", 200)}, 200, strings.Repeat("é", 200)},
		"201 characters":           {"/x", []string{strings.Repeat("a", 201)}, 400, ""},
		"empty":                    {"/x", []string{""}, 400, ""},
		"two":                      {"/x", []string{"a", "b"}, 400, ""},
		"a control character":      {"/x", []string{"a\tb"}, 400, ""},
		"not UTF-8":                {"/x", []string{"a\xff"}, 400, ""},
		"where it does not matter": {"/y", []string{""}, 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got = ""
			var headers []string
			for _, s := range tt.sent {
				headers = append(headers, "SVC-IDEMPOTENCY-KEY", s)
			}
			if w := e.do("POST", tt.path, nil, headers...); w.Code != tt.status || got != tt.want {
				t.Errorf("POST %s with %q = %d %q, want %d %q", tt.path, tt.sent, w.Code, got, tt.status, tt.want)
			}
		})
	}
}

func TestBrowsersMayCall(t *testing.T) {
	copying := func(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
		w.Header().Set("Access-Control-Allow-Origin", "https://destination.example")
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		return nil
	}
	rows := []httpapi.Route{
		{Pattern: "GET /tokens", Auth: httpapi.APIKey, Handle: answer},
		{Pattern: "* /proxy/{rest...}", Auth: httpapi.Anonymous, Body: httpapi.Raw, Handle: copying},
	}
	preflight := []string{"Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "x-" + planted}
	for name, tt := range map[string]struct {
		origins        []string
		method, target string
		headers        []string
		status         int
		allow, vary    string
	}{
		"a preflight":                {nil, "OPTIONS", "/tokens", append(preflight, "Origin", "https://a.example"), 204, "*", ""},
		"a preflight of nothing":     {nil, "OPTIONS", "/nothing", append(preflight, "Origin", "https://a.example"), 204, "*", ""},
		"a preflight of a proxy":     {nil, "OPTIONS", "/proxy/a", append(preflight, "Origin", "https://a.example"), 204, "*", ""},
		"no preflight, for a proxy":  {nil, "OPTIONS", "/proxy/a", nil, 200, "*", ""},
		"a request without a key":    {nil, "GET", "/tokens", []string{"Origin", "https://a.example"}, 401, "*", ""},
		"a request":                  {nil, "GET", "/tokens", []string{"SVC-API-KEY", goodKey}, 200, "*", ""},
		"what is not there":          {nil, "GET", "/nothing", []string{"Origin", "https://a.example"}, 404, "*", ""},
		"a destination's own":        {nil, "GET", "/proxy/a", nil, 200, "*", ""},
		"a listed origin":            {[]string{"https://a.example", "https://b.example"}, "GET", "/proxy/a", []string{"Origin", "https://b.example"}, 200, "https://b.example", "Origin"},
		"an origin that is not":      {[]string{"https://a.example"}, "GET", "/proxy/a", []string{"Origin", "https://b.example"}, 200, "", "Origin"},
		"no origin":                  {[]string{"https://a.example"}, "GET", "/proxy/a", nil, 200, "", "Origin"},
		"a preflight that is listed": {[]string{"https://a.example"}, "OPTIONS", "/tokens", append(preflight, "Origin", "https://a.example"), 204, "https://a.example", "Origin"},
		"a preflight that is not":    {[]string{"https://a.example"}, "OPTIONS", "/tokens", append(preflight, "Origin", "https://b.example"), 204, "", "Origin"},
		"a list with a star":         {[]string{"*", "https://a.example"}, "GET", "/proxy/a", nil, 200, "*", ""},
		"a health check":             {nil, "GET", "/healthz", []string{"Origin", "https://a.example"}, 200, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, httpapi.Options{CORSOrigins: tt.origins}, rows...)
			w := e.do(tt.method, tt.target, nil, tt.headers...)
			h := w.Header()
			if w.Code != tt.status || h.Get("Access-Control-Allow-Origin") != tt.allow || h.Get("Vary") != tt.vary {
				t.Errorf("%s %s = %d origin %q vary %q, want %d %q %q", tt.method, tt.target, w.Code,
					h.Get("Access-Control-Allow-Origin"), h.Get("Vary"), tt.status, tt.allow, tt.vary)
			}
			if h.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("credentials are allowed")
			}
			if exposed := h.Get("Access-Control-Expose-Headers"); (tt.allow != "") != strings.Contains(exposed, "SVC-TRACE-ID") {
				t.Errorf("exposed headers are %q", exposed)
			}
			isAllowedPreflight := tt.status == 204 && tt.allow != ""
			if allowed := h.Get("Access-Control-Allow-Headers"); isAllowedPreflight != strings.Contains(allowed, "SVC-API-KEY") || strings.Contains(allowed, planted) {
				t.Errorf("allowed headers are %q", allowed)
			}
			if isAllowedPreflight != strings.Contains(h.Get("Access-Control-Allow-Methods"), "PATCH") {
				t.Errorf("allowed methods are %q", h.Get("Access-Control-Allow-Methods"))
			}
			if h.Get("SVC-TRACE-ID") == "" {
				t.Error("no trace id")
			}
		})
	}
}

func TestHealthAndDraining(t *testing.T) {
	var notReady error
	e := newEdge(t, httpapi.Options{Ready: func(context.Context) error { return notReady }},
		httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: answer})
	check := func(when, path string, status int, body, connection string) {
		t.Helper()
		w := e.do("GET", path, nil)
		if w.Code != status || body != "" && w.Body.String() != body || w.Header().Get("Connection") != connection {
			t.Errorf("%s: GET %s = %d %s %v, want %d %s", when, path, w.Code, w.Body, w.Header(), status, body)
		}
		if status == 503 && (w.Header().Get("Retry-After") == "" || problem(t, w).Title != "Service Unavailable") {
			t.Errorf("%s: GET %s = %v %s, want a problem with Retry-After", when, path, w.Header(), w.Body)
		}
	}
	check("ready", "/healthz", 200, `{"status":"ok"}`, "")
	check("ready", "/readyz", 200, `{"status":"ready"}`, "")
	notReady = errors.New("the store is away")
	check("not ready", "/healthz", 200, `{"status":"ok"}`, "")
	check("not ready", "/readyz", 503, "", "")
	if !strings.Contains(e.log.String(), "the store is away") {
		t.Error("the log does not say why")
	}
	notReady = nil
	e.Drain()
	check("draining", "/healthz", 200, `{"status":"ok"}`, "close")
	check("draining", "/readyz", 503, "", "close")
	check("draining", "/x", 200, `{"said":"ok"}`, "close")
	check("draining", "/nothing", 404, "", "close")
}

func TestMetricsCountByPatternAlone(t *testing.T) {
	e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /tokens/{id}", Auth: httpapi.Anonymous, Handle: answer})
	shared := httpapi.New(httpapi.Options{Metrics: e.registry}, []httpapi.Route{
		{Pattern: "GET /metrics", Auth: httpapi.Anonymous, Unlimited: true, NoCORS: true, Handle: httpapi.Serve(promhttp.HandlerFor(e.registry, promhttp.HandlerOpts{}))},
	})
	e.do("GET", "/tokens/a", nil)
	e.do("GET", "/tokens/b", nil)
	e.do("BREW", "/coffee", nil)
	w := httptest.NewRecorder()
	shared.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{
		`tokenkeep_http_requests_total{method="GET",route="GET /tokens/{id}",status="2xx"} 2`,
		`tokenkeep_http_requests_total{method="OTHER",route="unmatched",status="4xx"} 1`,
		`tokenkeep_http_request_duration_seconds_count{route="GET /tokens/{id}"} 2`,
		`tokenkeep_http_requests_in_flight 1`,
		`tokenkeep_http_panics_total 0`,
		`tokenkeep_http_connection_errors_total 0`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("metrics lack %s in\n%s", want, w.Body)
		}
	}
}

func TestOutsideARequestThereIsNothingToRead(t *testing.T) {
	r := httptest.NewRequest("POST", "/x", strings.NewReader("{}"))
	_, authErr := httpapi.Authenticate(r)
	_, keyErr := httpapi.IdempotencyKey(r)
	for name, err := range map[string]error{"Decode": httpapi.Decode(r, new(document)), "Authenticate": authErr, "IdempotencyKey": keyErr} {
		if err == nil || fault.Of(err).Kind() != fault.Internal {
			t.Errorf("%s = %v, want our own failure", name, err)
		}
	}
	if id, addr := httpapi.TraceID(r.Context()), httpapi.ClientAddr(r.Context()); id != "" || addr.IsValid() {
		t.Errorf("TraceID, ClientAddr = %q, %v; want none", id, addr)
	}
}
