package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

func TestEveryKindOfFaultHasItsStatus(t *testing.T) {
	fields := map[string][]string{"data.number": {"is required"}}
	for name, tt := range map[string]struct {
		err   error
		want  api.Problem
		retry string
	}{
		"invalid":         {fault.New(fault.Invalid, "no"), api.Problem{Title: "Bad Request", Status: 400, Detail: "no", Code: "invalid_request", TraceID: "t-1"}, ""},
		"a field":         {fault.Field("data.number", "is required"), api.Problem{Title: "One or more validation errors occurred.", Status: 400, Detail: "the request is not valid; see errors", Errors: fields, Code: "validation_failed", TraceID: "t-1"}, ""},
		"unauthenticated": {fault.New(fault.Unauthenticated, "no"), api.Problem{Title: "Unauthorized", Status: 401, Detail: "no", Code: "unauthenticated", TraceID: "t-1"}, ""},
		"forbidden":       {fault.New(fault.Forbidden, "no"), api.Problem{Title: "Forbidden", Status: 403, Detail: "no", Code: "forbidden", TraceID: "t-1"}, ""},
		"not found":       {fmt.Errorf("read: %w", fault.New(fault.NotFound, "no")), api.Problem{Title: "Not Found", Status: 404, Detail: "no", Code: "not_found", TraceID: "t-1"}, ""},
		"method":          {fault.New(fault.MethodNotAllowed, "no"), api.Problem{Title: "Method Not Allowed", Status: 405, Detail: "no", Code: "method_not_allowed", TraceID: "t-1"}, ""},
		"timeout":         {fault.New(fault.Timeout, "no"), api.Problem{Title: "Request Timeout", Status: 408, Detail: "no", Code: "timeout", TraceID: "t-1"}, ""},
		"conflict":        {fault.New(fault.Conflict, "no"), api.Problem{Title: "Conflict", Status: 409, Detail: "no", Code: "conflict", TraceID: "t-1"}, ""},
		"gone":            {fault.New(fault.Gone, "no"), api.Problem{Title: "Gone", Status: 410, Detail: "no", Code: "gone", TraceID: "t-1"}, ""},
		"too large":       {fault.New(fault.TooLarge, "no"), api.Problem{Title: "Request Entity Too Large", Status: 413, Detail: "no", Code: "too_large", TraceID: "t-1"}, ""},
		"media type":      {fault.New(fault.MediaType, "no"), api.Problem{Title: "Unsupported Media Type", Status: 415, Detail: "no", Code: "media_type", TraceID: "t-1"}, ""},
		"unprocessable":   {fault.New(fault.Unprocessable, "no"), api.Problem{Title: "Unprocessable Entity", Status: 422, Detail: "no", Code: "unprocessable", TraceID: "t-1"}, ""},
		"too many":        {fault.New(fault.TooMany, "no").RetryAfter(1500 * time.Millisecond), api.Problem{Title: "Too Many Requests", Status: 429, Detail: "no", Code: "too_many_requests", TraceID: "t-1"}, "2"},
		"bad gateway":     {fault.New(fault.BadGateway, "no"), api.Problem{Title: "Bad Gateway", Status: 502, Detail: "no", Code: "bad_gateway", TraceID: "t-1"}, ""},
		"unavailable":     {fault.New(fault.Unavailable, "no"), api.Problem{Title: "Service Unavailable", Status: 503, Detail: "no", Code: "unavailable", TraceID: "t-1"}, "1"},
		"a bare kind":     {fault.NotFound, api.Problem{Title: "Not Found", Status: 404, Detail: "Not Found", Code: "not_found", TraceID: "t-1"}, ""},
		"internal":        {fault.New(fault.Internal, "secret words"), api.Problem{Title: "Internal Server Error", Status: 500, Detail: "internal error; trace id t-1", Code: "internal_error", TraceID: "t-1"}, ""},
		"no fault":        {errors.New("secret words"), api.Problem{Title: "Internal Server Error", Status: 500, Detail: "internal error; trace id t-1", Code: "internal_error", TraceID: "t-1"}, ""},
		"no known kind":   {fault.New(fault.Kind(99), "secret words"), api.Problem{Title: "Internal Server Error", Status: 500, Detail: "internal error; trace id t-1", Code: "internal_error", TraceID: "t-1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: failing(tt.err)})
			w := e.do("GET", "/x", nil, "SVC-TRACE-ID", "t-1")
			if diff := cmp.Diff(tt.want, problem(t, w)); diff != "" {
				t.Errorf("problem (-want +got)\n%s", diff)
			}
			if got := w.Header().Get("Retry-After"); got != tt.retry {
				t.Errorf("Retry-After = %q, want %q", got, tt.retry)
			}
			if w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v lack nosniff or no-store", w.Header())
			}
			if w.Header().Get("Content-Security-Policy") != "default-src 'none'; frame-ancestors 'none'; sandbox" || w.Header().Get("Origin-Agent-Cluster") != "?1" {
				t.Errorf("headers %v lack the policy of what is no document", w.Header())
			}
		})
	}
}

func TestARowMayShapeItsErrors(t *testing.T) {
	row := httpapi.Route{Pattern: "* /proxy/{rest...}", Auth: httpapi.APIKey, Handle: answer, Problem: func(p api.Problem) any { return map[string]any{"proxy_error": p} }}
	e := newEdge(t, httpapi.Options{}, row)
	w := e.do("GET", "/proxy/a", nil, "SVC-TRACE-ID", "t-1")
	want := `{"proxy_error":{"title":"Unauthorized","status":401,"detail":"the API key is missing; send it in the header: SVC-API-KEY","code":"api_key_missing","trace_id":"t-1"}}`
	if w.Code != 401 || w.Body.String() != want {
		t.Errorf("GET /proxy/a = %d %s, want 401 %s", w.Code, w.Body, want)
	}
	row.Problem = func(api.Problem) any { return make(chan int) }
	e = newEdge(t, httpapi.Options{}, row)
	if w := e.do("GET", "/proxy/a", nil); w.Code != 401 || w.Body.Len() != 0 || !strings.Contains(e.log.String(), "encode an answer") {
		t.Errorf("a shape that cannot be encoded = %d %s, want a bare 401 and a record of it", w.Code, w.Body)
	}
}

func TestOneRecordPerRequest(t *testing.T) {
	clock := time.Unix(1_700_000_000, 0)
	e := newEdge(t, httpapi.Options{Now: func() time.Time { clock = clock.Add(time.Second); return clock }},
		httpapi.Route{Pattern: "GET /tokens/{id}", Auth: httpapi.APIKey, Handle: answer},
		httpapi.Route{Pattern: "DELETE /tokens/{id}", Auth: httpapi.APIKey, Handle: failing(fault.New(fault.Conflict, "no"))},
		httpapi.Route{Pattern: "PUT /tokens/{id}", Auth: httpapi.APIKey, Handle: failing(errors.New("read token: disk on fire"))},
	)
	for name, tt := range map[string]struct {
		method, target string
		headers        []string
		want           map[string]any
	}{
		"served": {"GET", "/tokens/abc?q=1", []string{"SVC-API-KEY", goodKey}, map[string]any{
			"level": "INFO", "route": "GET /tokens/{id}", "method": "GET", "status": 200., "tenant": "tenant-1", "application": "app-1"}},
		"head": {"HEAD", "/tokens/abc", []string{"SVC-API-KEY", goodKey}, map[string]any{
			"level": "INFO", "route": "GET /tokens/{id}", "method": "HEAD", "status": 200., "tenant": "tenant-1", "application": "app-1"}},
		"a fault": {"DELETE", "/tokens/abc", []string{"SVC-API-KEY", goodKey}, map[string]any{
			"level": "INFO", "route": "DELETE /tokens/{id}", "method": "DELETE", "status": 409., "tenant": "tenant-1", "application": "app-1", "fault": "conflict"}},
		"our failure": {"PUT", "/tokens/abc", []string{"SVC-API-KEY", goodKey}, map[string]any{
			"level": "ERROR", "route": "PUT /tokens/{id}", "method": "PUT", "status": 500., "tenant": "tenant-1", "application": "app-1", "fault": "internal", "error": "read token: disk on fire"}},
		"no key": {"GET", "/tokens/abc", nil, map[string]any{
			"level": "INFO", "route": "GET /tokens/{id}", "method": "GET", "status": 401., "fault": "unauthenticated"}},
		"unmatched": {"BREW", "/coffee", nil, map[string]any{
			"level": "INFO", "route": "unmatched", "method": "OTHER", "status": 404., "fault": "not found"}},
		"preflight": {"OPTIONS", "/coffee", []string{"Origin", "https://a.example", "Access-Control-Request-Method", "GET"}, map[string]any{
			"level": "INFO", "route": "preflight", "method": "OPTIONS", "status": 204.}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(e.records())
			w := e.do(tt.method, tt.target, nil, append(tt.headers, "SVC-TRACE-ID", "t-1")...)
			if tt.want["bytes"] = float64(w.Body.Len()); tt.method == "HEAD" {
				tt.want["bytes"] = 0. // the recorder keeps what a server would not send
			}
			records := e.records()[before:]
			if len(records) != 1 {
				t.Fatalf("%d records, want 1", len(records))
			}
			got := records[0]
			delete(got, "time")
			delete(got, "source")
			tt.want["msg"], tt.want["trace_id"], tt.want["client"], tt.want["duration"] = "request", "t-1", "192.0.2.1", 1e9
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("record (-want +got)\n%s", diff)
			}
		})
	}
}

type secretPanic struct{ number string }

func TestAPanicBecomesAnAlarmAndAProblem(t *testing.T) {
	for name, tt := range map[string]struct {
		boom func()
		says string
	}{
		"a value":               {func() { panic(secretPanic{planted}) }, "withheld: not an error of the runtime"},
		"a text":                {func() { panic("card " + planted) }, "withheld: not an error of the runtime"},
		"an error":              {func() { panic(errors.New(planted)) }, "withheld: not an error of the runtime"},
		"of the runtime":        {func() { i := 5; _ = []int{1}[i] }, "runtime error: index out of range [5] with length 1"},
		"a status that is none": {nil, "withheld: not an error of the runtime"},
		"with our numbers":      {func() { i := 4242424242424242; _ = []int{1}[i] }, "withheld: the error's text holds a card number"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /boom", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
				w.Header().Set("ETag", "x")
				if tt.boom == nil {
					w.WriteHeader(42)
				}
				tt.boom()
				return nil
			}})
			w := e.do("GET", "/boom", nil)
			p := problem(t, w)
			trace := w.Header().Get("SVC-TRACE-ID")
			if w.Code != 500 || trace == "" || !strings.HasSuffix(p.Detail, "trace id "+trace) || w.Header().Get("ETag") != "" {
				t.Errorf("GET /boom = %d %v %+v, want 500 with its trace id", w.Code, w.Header(), p)
			}
			records := e.records()
			if len(records) != 1 {
				t.Fatalf("%d records, want 1", len(records))
			}
			got := records[0]
			if got["level"] != "ERROR+4" || got["panic"] != tt.says || got["trace_id"] != trace || got["status"] != 500. ||
				!strings.Contains(fmt.Sprint(got["stack"]), "problem_test.go") {
				t.Errorf("record %v, want an alarm that says %q and where", got, tt.says)
			}
			if strings.Contains(e.log.String()+w.Body.String(), planted) {
				t.Error("what the panic held was shown")
			}
			if !strings.Contains(e.exposition(), "tokenkeep_http_panics_total 1") {
				t.Error("the panic was not counted")
			}
		})
	}
}

func TestAnAnswerThatBrokeOffIsNotMadeWhole(t *testing.T) {
	for name, tt := range map[string]struct {
		after func() error
		level string
	}{
		"a panic":          {func() error { panic("late") }, "ERROR+4"},
		"an error":         {func() error { return errors.New("late") }, "ERROR"},
		"the abort itself": {func() error { panic(http.ErrAbortHandler) }, "INFO"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /half", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
				_, _ = w.Write([]byte("half"))
				return tt.after()
			}})
			defer func() {
				if got := recover(); got != http.ErrAbortHandler {
					t.Errorf("the connection was not broken off: recovered %v", got)
				}
				if r := e.records(); len(r) != 1 || r[0]["level"] != tt.level {
					t.Errorf("records %v, want one of level %s", r, tt.level)
				}
			}()
			e.do("GET", "/half", nil)
		})
	}
}

func TestAClientThatWentAwayIsNotOurFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: func(_ http.ResponseWriter, r *http.Request, _ access.Caller) error {
		cancel()
		return fmt.Errorf("read token: %w", r.Context().Err())
	}})
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequest("GET", "/x", nil).WithContext(ctx))
	if got := e.records()[0]; w.Code != 499 || got["level"] != "INFO" || got["status"] != 499. {
		t.Errorf("status %d, record %v; want 499 and no error", w.Code, got)
	}
	problem(t, w)

	e = newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: failing(context.Canceled)})
	if w := e.do("GET", "/x", nil); w.Code != 500 {
		t.Errorf("a cancellation of our own = %d, want 500", w.Code)
	}
}

func TestAnEmptyAnswerIsStillComplete(t *testing.T) {
	e := newEdge(t, httpapi.Options{}, httpapi.Route{Pattern: "POST /x", Auth: httpapi.Anonymous, Handle: failing(nil)})
	if w := e.do("POST", "/x", nil); w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("SVC-TRACE-ID") == "" {
		t.Errorf("POST /x = %d %q %v, want an empty 200 with a trace id", w.Code, w.Body, w.Header())
	}
}
