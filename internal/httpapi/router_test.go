package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// showRoute answers with the row and the path values it was reached with.
func showRoute(pattern string, names ...string) httpapi.Route {
	return httpapi.Route{Pattern: pattern, Auth: httpapi.Anonymous, Body: httpapi.Raw, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		w.Header().Set("X-Row", pattern)
		for _, n := range names {
			w.Header().Add("X-Value", url.QueryEscape(r.PathValue(n)))
		}
		return nil
	}}
}

func routingTable() []httpapi.Route {
	return []httpapi.Route{
		showRoute("GET /tokens"),
		showRoute("POST /tokens"),
		showRoute("POST /tokens/search"),
		showRoute("GET /tokens/{id}", "id"),
		showRoute("DELETE /tokens/{id}", "id"),
		showRoute("GET /applications/{id}/keys/{key}", "id", "key"),
		showRoute("GET /applications/key"),
		showRoute("GET /v2/tokens"),
		showRoute("GET /files/{id}/meta", "id"),
		showRoute("GET /files/{rest...}", "rest"),
		showRoute("* /proxy/{rest...}", "rest"),
	}
}

func TestRoutesAreFoundByPathAndMethod(t *testing.T) {
	e := newEdge(t, httpapi.Options{}, routingTable()...)
	for name, tt := range map[string]struct {
		request string
		row     string // "" when none
		values  string
		status  int
		allow   string
	}{
		"a list":                            {"GET /tokens", "GET /tokens", "", 200, ""},
		"one trailing slash":                {"GET /tokens/", "GET /tokens", "", 200, ""},
		"two trailing slashes":              {"GET /tokens//", "", "", 404, ""},
		"two leading slashes":               {"GET //tokens", "", "", 404, ""},
		"an id":                             {"GET /tokens/abc", "GET /tokens/{id}", "abc", 200, ""},
		"an id and a slash":                 {"GET /tokens/abc/", "GET /tokens/{id}", "abc", 200, ""},
		"an id with an encoded slash":       {"GET /tokens/a%2Fb", "GET /tokens/{id}", "a/b", 200, ""},
		"an id that is an encoded slash":    {"GET /tokens/%2F", "GET /tokens/{id}", "/", 200, ""},
		"an id decoded once":                {"GET /tokens/a%252Fb", "GET /tokens/{id}", "a%2Fb", 200, ""},
		"an id with a plus":                 {"GET /tokens/a+b", "GET /tokens/{id}", "a+b", 200, ""},
		"an id with a space":                {"GET /tokens/a%20b", "GET /tokens/{id}", "a b", 200, ""},
		"an id of two dots":                 {"GET /tokens/..", "GET /tokens/{id}", "..", 200, ""},
		"an id in another script":           {"GET /tokens/%E2%82%AC", "GET /tokens/{id}", "€", 200, ""},
		"a literal with an encoded letter":  {"GET /%74okens", "GET /tokens", "", 200, ""},
		"a literal with an encoded slash":   {"GET /v2%2Ftokens", "", "", 404, ""},
		"a literal before an id":            {"POST /tokens/search", "POST /tokens/search", "", 200, ""},
		"an id called like a literal":       {"GET /tokens/search", "GET /tokens/{id}", "search", 200, ""},
		"a literal where an id may stand":   {"GET /applications/key", "GET /applications/key", "", 200, ""},
		"two ids":                           {"GET /applications/a%2Fb/keys/c", "GET /applications/{id}/keys/{key}", "a/b c", 200, ""},
		"two ids and a slash":               {"GET /applications/a/keys/c/", "GET /applications/{id}/keys/{key}", "a c", 200, ""},
		"an empty id":                       {"GET /applications//keys/c", "", "", 404, ""},
		"half a path":                       {"GET /applications/a/keys", "", "", 404, ""},
		"head is served where get is":       {"HEAD /tokens/abc", "GET /tokens/{id}", "abc", 200, ""},
		"a method that is not there":        {"PUT /tokens/abc", "", "", 405, "DELETE, GET, HEAD, OPTIONS"},
		"a method of neither":               {"PUT /tokens/search", "", "", 405, "DELETE, GET, HEAD, OPTIONS, POST"},
		"a method and a trailing slash":     {"PUT /tokens/", "", "", 405, "GET, HEAD, OPTIONS, POST"},
		"an invented method":                {"BREW /tokens", "", "", 405, "GET, HEAD, OPTIONS, POST"},
		"a method in lower case":            {"get /tokens", "", "", 405, "GET, HEAD, OPTIONS, POST"},
		"options":                           {"OPTIONS /tokens", "", "", 204, "GET, HEAD, OPTIONS, POST"},
		"options of nothing":                {"OPTIONS /nothing", "", "", 404, ""},
		"a path in upper case":              {"GET /TOKENS", "", "", 404, ""},
		"the root":                          {"GET /", "", "", 404, ""},
		"a proxy without a rest":            {"GET /proxy", "* /proxy/{rest...}", "", 200, ""},
		"a proxy with a slash":              {"GET /proxy/", "* /proxy/{rest...}", "/", 200, ""},
		"a proxy keeps the rest as sent":    {"BREW /proxy/a%2Fb//c/../d/", "* /proxy/{rest...}", "/a%2Fb//c/../d/", 200, ""},
		"a proxy keeps what is no utf-8":    {"GET /proxy/%FF%00", "* /proxy/{rest...}", "/%FF%00", 200, ""},
		"a proxy gets plain options":        {"OPTIONS /proxy/a", "* /proxy/{rest...}", "/a", 200, ""},
		"something that begins with proxy":  {"GET /proxyx", "", "", 404, ""},
		"a NUL in an id":                    {"GET /tokens/a%00b", "", "", 400, ""},
		"an id that is not utf-8":           {"GET /tokens/%FF", "", "", 400, ""},
		"an overlong encoding of a slash":   {"GET /tokens/%C0%AF", "", "", 400, ""},
		"a NUL where nothing is":            {"GET /nothing/%00", "", "", 404, ""},
		"an id before a rest":               {"GET /files/a/meta", "GET /files/{id}/meta", "a", 200, ""},
		"a rest after a way that ended":     {"GET /files/a/b", "GET /files/{rest...}", "/a/b", 200, ""},
		"a deep path":                       {"GET /" + strings.Repeat("a/", 10_000), "", "", 404, ""},
		"a deep path of slashes":            {"GET " + strings.Repeat("/", 10_000), "", "", 404, ""},
		"an absolute target":                {"GET http://elsewhere.example/tokens/abc", "GET /tokens/{id}", "abc", 200, ""},
		"a query does not matter":           {"GET /tokens/?a=/x/../y", "GET /tokens", "", 200, ""},
		"a semicolon is part of an id":      {"GET /tokens/a;b=c", "GET /tokens/{id}", "a;b=c", 200, ""},
		"a backslash is part of an id":      {"GET /tokens/a%5Cb", "GET /tokens/{id}", `a\b`, 200, ""},
		"an encoded dot segment is an id":   {"GET /tokens/%2E%2E", "GET /tokens/{id}", "..", 200, ""},
		"a dot segment is not walked":       {"GET /tokens/../tokens", "", "", 404, ""},
		"an encoded query mark in the path": {"GET /tokens/a%3Fb", "GET /tokens/{id}", "a?b", 200, ""},
	} {
		t.Run(name, func(t *testing.T) {
			method, target, _ := strings.Cut(tt.request, " ")
			w := e.do(method, target, nil)
			var values []string
			for _, v := range w.Header().Values("X-Value") {
				plain, _ := url.QueryUnescape(v)
				values = append(values, plain)
			}
			got := strings.Join(values, " ")
			if w.Code != tt.status || w.Header().Get("X-Row") != tt.row || got != tt.values || w.Header().Get("Allow") != tt.allow {
				t.Errorf("%.80s = %d row %q values %q allow %q, want %d row %q values %q allow %q", tt.request,
					w.Code, w.Header().Get("X-Row"), got, w.Header().Get("Allow"), tt.status, tt.row, tt.values, tt.allow)
			}
			if w.Code >= 400 {
				problem(t, w)
			}
			if w.Header().Get("SVC-TRACE-ID") == "" {
				t.Errorf("%.80s: no trace id", tt.request)
			}
		})
	}
}

func TestAPathThatNoParserMadeIsRefusedAndNotFollowed(t *testing.T) {
	e := newEdge(t, httpapi.Options{}, routingTable()...)
	for name, u := range map[string]*url.URL{
		"a raw path that does not match": {Path: "/tokens/a", RawPath: "/tokens/%zz"},
		"a path without a slash":         {Path: "tokens"},
		"no path":                        {Path: ""},
		"opaque":                         {Opaque: "//tokens"},
		"a raw NUL":                      {Path: "/tokens/\x00"},
		"raw bytes":                      {Path: "/tokens/\xff\xfe"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.URL = u
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			if w.Code != 200 && w.Code != 400 && w.Code != 404 {
				t.Errorf("GET %q = %d, want 200, 400 or 404", u.Path, w.Code)
			}
		})
	}
}

func TestATableWithAMistakeIsNotServed(t *testing.T) {
	for name, rows := range map[string][]httpapi.Route{
		"no method":              {{Pattern: "/tokens", Auth: httpapi.APIKey, Handle: answer}},
		"no path":                {{Pattern: "GET", Auth: httpapi.APIKey, Handle: answer}},
		"no handler":             {{Pattern: "GET /tokens", Auth: httpapi.APIKey}},
		"the same twice":         {{Pattern: "GET /a/{id}", Auth: httpapi.APIKey, Handle: answer}, {Pattern: "GET /a/{other}", Auth: httpapi.APIKey, Handle: answer}},
		"a brace left open":      {{Pattern: "GET /a/{id", Auth: httpapi.APIKey, Handle: answer}},
		"a value without a name": {{Pattern: "GET /a/{}", Auth: httpapi.APIKey, Handle: answer}},
		"a rest in the middle":   {{Pattern: "GET /a/{rest...}/b", Auth: httpapi.APIKey, Handle: answer}},
		"an empty segment":       {{Pattern: "GET /a//b", Auth: httpapi.APIKey, Handle: answer}},
		"no word on callers":     {{Pattern: "GET /a", Handle: answer}},
		"callers of no kind":     {{Pattern: "GET /a", Auth: 99, Handle: answer}},
		"a row of the socket":    {{Pattern: "GET /a", Auth: httpapi.AdminSocket, Handle: answer}},
		"no such permission":     {{Pattern: "GET /a", Auth: httpapi.APIKey, Permission: 99, Handle: answer}},
		"a permission and a key": {{Pattern: "GET /a", Auth: httpapi.PublicKey, Permission: access.TokenRead, Handle: answer}},
		"a key that code lacks":  {{Pattern: "GET /a", Auth: httpapi.PrivateKey, FromCode: true, Handle: answer}},
		"a health check twice":   {{Pattern: "GET /healthz", Auth: httpapi.APIKey, Handle: answer}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("New accepted the table")
				}
			}()
			httpapi.New(httpapi.Options{}, rows)
		})
	}
}

func TestRoutesReturnsEveryRow(t *testing.T) {
	e := newEdge(t, httpapi.Options{}, routingTable()...)
	var got []string
	for _, r := range e.Routes() {
		got = append(got, r.Pattern)
	}
	want := len(routingTable()) + 2
	if len(got) != want || got[0] != "GET /healthz" || got[1] != "GET /readyz" {
		t.Errorf("Routes() = %q, want the health checks and the %d rows given", got, want-2)
	}
	e.Routes()[0].Handle = nil
	if w := e.do("GET", "/healthz", nil); w.Code != 200 {
		t.Errorf("a change to the returned rows reached the handler: /healthz = %d", w.Code)
	}
}
