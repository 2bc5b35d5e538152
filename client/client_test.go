package client_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

func TestNewRefusesWhatCannotWork(t *testing.T) {
	cases := map[string]struct {
		base   string
		option client.Option
		ok     bool
	}{
		"an address":           {"http://127.0.0.1:8420", client.WithKey("k"), true},
		"one with a path":      {"https://vault.example/keep/", client.WithKey("k"), true},
		"no scheme":            {"vault.example", client.WithKey("k"), false},
		"another scheme":       {"ftp://vault.example", client.WithKey("k"), false},
		"no host":              {"https://", client.WithKey("k"), false},
		"a user":               {"https://u:canary@vault.example", client.WithKey("k"), false},
		"a query":              {"https://vault.example?x=canary", client.WithKey("k"), false},
		"a fragment":           {"https://vault.example#canary", client.WithKey("k"), false},
		"not a URL":            {"https://canary\x7f", client.WithKey("k"), false},
		"an empty key":         {"https://vault.example", client.WithKey(""), false},
		"a key of two lines":   {"https://vault.example", client.WithKey("canary\r\nX: y"), false},
		"a key with spaces":    {"https://vault.example", client.WithKey(" canary"), false},
		"a prefix":             {"https://vault.example", client.WithHeaderPrefix("BT"), true},
		"an empty prefix":      {"https://vault.example", client.WithHeaderPrefix(""), false},
		"a prefix with spaces": {"https://vault.example", client.WithHeaderPrefix("B T"), false},
		"no HTTP client":       {"https://vault.example", client.WithHTTPClient(nil), false},
		"negative retries":     {"https://vault.example", client.WithRetries(-1), false},
		"no bound":             {"https://vault.example", client.WithMaxResponse(0), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := client.New(c.base, c.option)
			if (err == nil) != c.ok {
				t.Errorf("New = %v, want ok %t", err, c.ok)
			}
			if err != nil && strings.Contains(err.Error(), "canary") {
				t.Errorf("New = %v, which repeats what it was given", err)
			}
		})
	}
}

func TestRequestsCarryWhatIsDue(t *testing.T) {
	f := newFake(t, answer{status: 200, body: `{}`})
	c, err := client.New(f.URL+"/keep/", client.WithKey(fakeKey), client.WithHeaderPrefix("BT"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	calls := map[string]struct {
		call          func() error
		method, path  string
		body          string
		key, idem, ct bool
	}{
		"a look":          {func() error { _, err := c.Applications.Get(ctx, "a/b%? c"); return err }, "GET", "/keep/applications/a%2Fb%25%3F%20c", "", true, false, false},
		"a change":        {func() error { _, err := c.Tenant.Replace(ctx, api.ReplaceTenant{Name: "n"}); return err }, "PUT", "/keep/tenants/self", `{"name":"n"}`, true, true, true},
		"a bodyless post": {func() error { _, err := c.Keys.Create(ctx, "a"); return err }, "POST", "/keep/applications/a/keys", "", true, true, false},
		"a deletion":      {func() error { return c.Keys.Delete(ctx, "a", "k") }, "DELETE", "/keep/applications/a/keys/k", "", true, false, false},
		"a health check":  {func() error { return c.Health(ctx) }, "GET", "/keep/healthz", "", false, false, false},
	}
	for name, want := range calls {
		t.Run(name, func(t *testing.T) {
			if err := want.call(); err != nil {
				t.Fatal(err)
			}
			r, body := f.got[len(f.got)-1], f.bodies[len(f.bodies)-1]
			if r.Method != want.method || r.URL.EscapedPath() != want.path || body != want.body {
				t.Errorf("sent %s %s %s, want %s %s %s", r.Method, r.URL.EscapedPath(), body, want.method, want.path, want.body)
			}
			if got := r.Header.Get("BT-API-KEY") == fakeKey; got != want.key {
				t.Errorf("with its key %t, want %t", got, want.key)
			}
			if got := len(r.Header.Get("BT-IDEMPOTENCY-KEY")) == 36; got != want.idem {
				t.Errorf("with an idempotency key %t, want %t", got, want.idem)
			}
			if got := r.Header.Get("Content-Type") == "application/json"; got != want.ct {
				t.Errorf("with a content type %t, want %t", got, want.ct)
			}
		})
	}
}

func TestFiltersBecomeQueries(t *testing.T) {
	f := newFake(t, answer{status: 200, body: `{"pagination":{"total_items":0,"page_number":1,"page_size":20,"total_pages":0},"data":[]}`})
	c := f.client(t)
	at := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600))
	cases := map[string]struct {
		call func() error
		want string
	}{
		"applications": {func() error {
			_, err := c.Applications.Page(t.Context(), client.ApplicationFilter{IDs: []string{"a&b", "c"}, Types: []string{"public"}}, 2, 50)
			return err
		}, "id=a%26b&id=c&page=2&size=50&type=public"},
		"logs": {func() error {
			_, err := c.Logs.Page(t.Context(), client.LogFilter{EntityType: "card", EntityID: "x", From: at, Before: at.Add(time.Hour)}, 0, 0)
			return err
		}, "end_date=2030-01-02T03%3A04%3A05.000006Z&entity_id=x&entity_type=card&start_date=2030-01-02T02%3A04%3A05.000006Z"},
		"no filter": {func() error { _, err := c.Logs.Page(t.Context(), client.LogFilter{}, 0, 0); return err }, ""},
	}
	for name, want := range cases {
		if err := want.call(); err != nil {
			t.Fatal(err)
		}
		if got := f.got[len(f.got)-1].URL.RawQuery; got != want.want {
			t.Errorf("%s: query %s, want %s", name, got, want.want)
		}
	}
}

// TestIDsThatWouldChangeTheCallAreRefused: an empty id would list instead of
// reading one, and two dots would delete the application instead of its key.
func TestIDsThatWouldChangeTheCallAreRefused(t *testing.T) {
	f := newFake(t, answer{status: 200, body: `{}`})
	c := f.client(t)
	for _, id := range []string{"", ".", ".."} {
		_, err := c.Applications.Get(t.Context(), id)
		if err2 := c.Keys.Delete(t.Context(), "a", id); !errors.Is(err, client.ErrInvalid) || !errors.Is(err2, client.ErrInvalid) {
			t.Errorf("Get(%q) = %v, Delete(%q) = %v, want ErrInvalid", id, err, id, err2)
		}
	}
	if n := len(f.requests()); n != 0 {
		t.Errorf("%d requests left, want none", n)
	}
}

func TestErrorsCanBeToldApart(t *testing.T) {
	all := []error{
		client.ErrInvalid, client.ErrUnauthenticated, client.ErrForbidden, client.ErrNotFound, client.ErrConflict, client.ErrTooMany, client.ErrUnavailable,
	}
	cases := map[int]error{
		302: nil, 400: client.ErrInvalid, 401: client.ErrUnauthenticated, 403: client.ErrForbidden, 404: client.ErrNotFound, 405: nil, 409: client.ErrConflict,
		413: client.ErrInvalid, 415: client.ErrInvalid, 429: client.ErrTooMany, 500: nil, 502: client.ErrUnavailable, 503: client.ErrUnavailable, 504: client.ErrUnavailable,
	}
	for status, want := range cases {
		f := newFake(t, answer{status: status, body: fmt.Sprintf(`{"title":"T","status":%d,"detail":"d","errors":{"name":["is bad"]}}`, status)})
		_, err := f.client(t, client.WithRetries(0)).Tenant.Get(t.Context())
		var e *client.Error
		if !errors.As(err, &e) || e.Status != status || e.TraceID != "trace-1" || e.Problem.Detail != "d" || e.Problem.Errors["name"][0] != "is bad" {
			t.Errorf("%d: error %#v", status, err)
		}
		for _, kind := range all {
			if got := errors.Is(err, kind); got != (kind == want) {
				t.Errorf("%d: errors.Is(%v) = %t", status, kind, got)
			}
		}
		if got, want := err.Error(), fmt.Sprintf("client: GET /tenants/self: %d T: d; name: is bad (trace id trace-1)", status); got != want {
			t.Errorf("error %q, want %q", got, want)
		}
	}
}

func TestAnswersThatAreNotOurs(t *testing.T) {
	cases := map[string]struct {
		answer answer
		want   string
	}{
		"a page of a load balancer": {answer{status: 404, body: "<html>canary</html>"}, "client: GET /tenants/self: 404 Not Found (trace id trace-1)"},
		"JSON of another kind":      {answer{status: 400, body: `{"error":"canary"}`}, "client: GET /tenants/self: 400 Bad Request (trace id trace-1)"},
		"our form with more lines":  {answer{status: 400, body: `{"title":"a\nb","status":400,"detail":"d\u001b[31m"}`}, "client: GET /tenants/self: 400 a?b: d?[31m (trace id trace-1)"},
		"the key in the body":       {answer{status: 400, body: `{"title":"t","status":400,"detail":"` + fakeKey + `"}`}, "client: GET /tenants/self: 400 Bad Request (trace id trace-1)"},
		"the key in the trace id":   {answer{status: 404, header: []string{"SVC-TRACE-ID", fakeKey}}, "client: GET /tenants/self: 404 Not Found"},
		"a redirect":                {answer{status: 307, header: []string{"Location", "/canary"}}, "client: GET /tenants/self: 307 Temporary Redirect: redirects are not followed (trace id trace-1)"},
		"a success that is no JSON": {answer{status: 200, body: "canary"}, "client: GET /tenants/self: the answer is not understood"},
		"of another media type":     {answer{status: 200, body: "{}", header: []string{"Content-Type", "text/html"}}, "client: GET /tenants/self: the answer is not understood"},
		"an empty success":          {answer{status: 200}, "client: GET /tenants/self: the answer is not understood"},
		"one that is too large":     {answer{status: 200, body: `{"id":"` + strings.Repeat("x", 1000) + `"}`}, "client: GET /tenants/self: the answer is larger than this client takes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.answer)
			_, err := f.client(t, client.WithMaxResponse(1000)).Tenant.Get(t.Context())
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if n := len(f.requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

// TestRedirectsAreNotFollowed even when the HTTP client would follow them.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := newFake(t, answer{status: 200, body: `{}`})
	for _, status := range []int{301, 302, 303, 307, 308} {
		f := newFake(t, answer{status: status, header: []string{"Location", elsewhere.URL}})
		h := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
		c := f.client(t, client.WithHTTPClient(h))
		_, err := c.Tenant.Get(t.Context())
		_, err2 := c.Applications.Create(t.Context(), api.CreateApplication{})
		var e *client.Error
		if !errors.As(err, &e) || e.Status != status || !errors.As(err2, &e) || e.Status != status {
			t.Errorf("%d: errors %v, %v", status, err, err2)
		}
		if h.CheckRedirect(nil, nil) != nil {
			t.Error("the caller's HTTP client was changed")
		}
	}
	if n := len(elsewhere.requests()); n != 0 {
		t.Errorf("%d requests went elsewhere, want none", n)
	}
}

// TestNothingPrintsTheKey prints clients and errors in every way there is.
func TestNothingPrintsTheKey(t *testing.T) {
	f := newFake(t, answer{status: 403, body: `{"title":"Forbidden","status":403,"detail":"no"}`})
	c := f.client(t)
	_, refused := c.Applications.Get(t.Context(), "id-canary")
	f.Close()
	_, broken := c.Applications.Page(t.Context(), client.ApplicationFilter{IDs: []string{"id-canary"}}, 1, 1)
	if refused == nil || !errors.Is(broken, client.ErrUnavailable) {
		t.Fatalf("errors %v, %v", refused, broken)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range []any{c, *c, &c, c.Tenant, []any{c}, struct{ hidden any }{c}, struct{ hidden *client.Client }{c}, refused, broken} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb, v)
		}
		b, _ := json.Marshal(v)
		out.Write(b)
		log.Info("a call", "value", v)
	}
	// Hexadecimal and decimal forms of the key would show up as runs of bytes.
	for _, form := range []string{fakeKey, fmt.Sprintf("%x", fakeKey), fmt.Sprint([]byte(fakeKey)), "id-canary", fmt.Sprintf("%x", "id-canary")} {
		if strings.Contains(out.String(), strings.Trim(form, "[]")) {
			t.Errorf("what was printed holds %s", form)
		}
	}
}

// TestErrorsOfConnectionsDoNotRepeatAnything, not even what the other side
// sends back that is no HTTP.
func TestErrorsOfConnectionsDoNotRepeatAnything(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 %s\r\n\r\n", r.Header.Get("SVC-API-KEY"))
		_ = conn.Close()
	}))
	defer s.Close()
	c, err := client.New(s.URL, client.WithKey(fakeKey), client.WithRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Applications.Get(t.Context(), "id-canary")
	if !errors.Is(err, client.ErrUnavailable) {
		t.Fatalf("error %v, want ErrUnavailable", err)
	}
	for e := err; e != nil; {
		if strings.Contains(e.Error(), "canary") {
			t.Errorf("the error repeats what was sent: %v", e)
		}
		several, ok := e.(interface{ Unwrap() []error })
		if !ok {
			break
		}
		e = several.Unwrap()[1]
	}
}

func TestAContextThatEndsEndsTheCall(t *testing.T) {
	stuck := make(chan struct{})
	arrived := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-stuck
	}))
	defer s.Close()
	defer close(stuck)
	c, err := client.New(s.URL, client.WithKey(fakeKey))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	_, err = c.Applications.Get(ctx, "id-canary")
	if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnavailable) || strings.Contains(err.Error(), "canary") {
		t.Errorf("error %v, want one that is context.Canceled alone and repeats no id", err)
	}
}

func TestTheAuthoritiesOfAServerMayBeGiven(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"ok"}`)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	c, err := client.New(s.URL, client.WithRootCAs(pool))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Health(t.Context()); err != nil {
		t.Errorf("with its authority: %v", err)
	}
	if c, err = client.New(s.URL); err != nil {
		t.Fatal(err)
	}
	if err := c.Health(t.Context()); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("without it: %v", err)
	}
	for name, options := range map[string][]client.Option{
		"none":                   {client.WithRootCAs(nil)},
		"before an HTTP client":  {client.WithRootCAs(pool), client.WithHTTPClient(http.DefaultClient)},
		"behind an HTTP client":  {client.WithHTTPClient(http.DefaultClient), client.WithRootCAs(pool)},
		"beside an HTTP client ": {client.WithHTTPClient(&http.Client{}), client.WithRootCAs(pool)},
	} {
		if _, err := client.New(s.URL, options...); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
