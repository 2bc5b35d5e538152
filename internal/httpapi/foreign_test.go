package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/access/accesstest"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/response"
)

func TestWhatOthersMaySetOnOurAnswers(t *testing.T) {
	for name, want := range map[string]bool{
		"Content-Type": true, "X-Own": true, "Cache-Control": true, "Location": true, "Retry-After": true, "ETag": true, "Content-Encoding": true, "SVCX-Own": true,
		"set-cookie": false, "Content-Length": false, "TRANSFER-ENCODING": false, "Connection": false, "Upgrade": false, "Trailer": false,
		"Content-Security-Policy": false, "X-Content-Type-Options": false, "Clear-Site-Data": false, "Strict-Transport-Security": false,
		"Access-Control-Allow-Origin": false, "access-control-allow-credentials": false, "NEL": false, "Report-To": false, "Reporting-Endpoints": false,
		"SVC-TRACE-ID": false, "svc-anything": false, "Service-Worker-Allowed": false, "Accept-CH": false,
	} {
		if got := httpapi.IsForeign("SVC", name); got != want {
			t.Errorf("IsForeign(%q) = %t, want %t", name, got, want)
		}
	}
}

func TestAnAnswerOfCodeIsGuarded(t *testing.T) {
	e := newEdge(t, httpapi.Options{HeaderPrefix: "OWN"}, httpapi.Route{Pattern: "GET /x", Auth: httpapi.Anonymous, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		return httpapi.Write(w, &response.Response{Status: 201, Body: []byte("<script>"), Headers: map[string]string{
			"X-A": "b", "x tab": "no", "X-Line": "a\nb", "X-Zero": "a\x00b", "": "no", "OWN-TRACE-ID": "theirs", "content-encoding": "gzip",
			"Content-Type": "text/html", "Set-Cookie": "a=b", "Content-Security-Policy": "none",
		}})
	}})
	w := e.do("GET", "/x", nil)
	h := w.Header()
	if w.Code != 201 || w.Body.String() != "<script>" || h.Get("X-A") != "b" || h.Get("Content-Type") != "text/html" || h.Get("Content-Length") != "8" {
		t.Errorf("the answer is %d %s %v", w.Code, w.Body, h)
	}
	if h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("OWN-TRACE-ID") == "theirs" {
		t.Errorf("it is not guarded: %v", h)
	}
	for _, name := range []string{"Set-Cookie", "X-Line", "X-Zero", "X tab", "Content-Encoding", ""} {
		if _, there := h[http.CanonicalHeaderKey(name)]; there {
			t.Errorf("code set %q", name)
		}
	}
}

// TestCodeCallsRowsForCodeInAnothersName: whatever it sends, it is the one
// that it acts for, and other rows are not there.
func TestCodeCallsRowsForCodeInAnothersName(t *testing.T) {
	say := func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
		return httpapi.WriteJSON(w, 200, []string{c.Application(), c.Origin().TraceID, httpapi.TraceID(r.Context()), httpapi.ClientAddr(r.Context()).String()})
	}
	e := newEdge(t, httpapi.Options{RateLimits: httpapi.RateLimits{PerAddress: httpapi.Rate{PerSecond: 0.1, Burst: 3}}},
		httpapi.Route{Pattern: "GET /tokens", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true, Handle: say},
		httpapi.Route{Pattern: "GET /not-for-code", Auth: httpapi.APIKey, Permission: access.TokenRead, Handle: say},
		httpapi.Route{Pattern: "GET /applications", Auth: httpapi.APIKey, Permission: access.ApplicationRead, Handle: say},
		httpapi.Route{Pattern: "GET /permissions", Auth: httpapi.APIKey, Handle: say},
		httpapi.Route{Pattern: "GET /open", Auth: httpapi.Anonymous, Handle: say})
	from := func(address string) http.Handler {
		return e.As(accesstest.Caller(t, "tenant-1", "acting", access.TokenRead).WithOrigin(access.Origin{TraceID: "trace", Address: address}))
	}
	call := func(h http.Handler, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = "@"
		r.Header.Set("SVC-API-KEY", goodKey)
		r.Header.Set("SVC-TRACE-ID", "own")
		r.Header.Set("X-Forwarded-For", "192.0.2.9")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	if w := call(from("192.0.2.1"), "/tokens"); w.Code != 200 || w.Body.String() != `["acting","trace","trace","192.0.2.1"]` {
		t.Errorf("GET /tokens = %d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/not-for-code", "/applications", "/permissions", "/open", "/healthz", "/nothing"} {
		if w := call(from("192.0.2.2"), path); w.Code != 404 && w.Code != 429 {
			t.Errorf("GET %s = %d %s, want that it is not there", path, w.Code, w.Body)
		}
	}
	// One caller's code uses up that caller's share, and nobody else's.
	for range 2 {
		call(from("192.0.2.1"), "/tokens")
	}
	if w := call(from("192.0.2.1"), "/tokens"); w.Code != 429 {
		t.Errorf("the fourth call = %d, want 429", w.Code)
	}
	if w := call(from("192.0.2.3"), "/tokens"); w.Code != 200 {
		t.Errorf("another caller's code = %d %s, want 200", w.Code, w.Body)
	}
}
