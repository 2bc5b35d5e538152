package httpapi_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// leakRows are rows that go wrong in every way that a row can.
func leakRows() []httpapi.Route {
	decode := func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		q, err := httpapi.Query(r)
		if err != nil {
			return err
		}
		if _, err := httpapi.PageOf(q); err != nil {
			return err
		}
		if _, err := httpapi.IdempotencyKey(r); err != nil {
			return err
		}
		var d document
		return httpapi.Decode(r, &d)
	}
	var rows []httpapi.Route
	for _, auth := range []httpapi.Auth{httpapi.APIKey, httpapi.Anonymous} {
		for _, method := range []string{"GET", "POST", "PUT"} {
			path := fmt.Sprintf("/%s%d/{id}", strings.ToLower(method), auth)
			rows = append(rows,
				httpapi.Route{Pattern: method + " " + path, Auth: auth, Body: httpapi.JSON, Idempotent: true, Handle: decode},
				httpapi.Route{Pattern: method + " " + path + "/patch", Auth: auth, Body: httpapi.MergePatch, Handle: decode},
				httpapi.Route{Pattern: method + " " + path + "/fault", Auth: auth, Handle: failing(fault.New(fault.NotFound, "no such token"))},
				httpapi.Route{Pattern: method + " " + path + "/broken", Auth: auth, Handle: failing(errors.New("read token: disk on fire"))},
				httpapi.Route{Pattern: method + " " + path + "/panic", Auth: auth, Handle: func(_ http.ResponseWriter, r *http.Request, _ access.Caller) error {
					panic(r.URL.String() + r.PathValue("id"))
				}},
			)
		}
	}
	return append(rows, httpapi.Route{Pattern: "* /proxy/{rest...}", Auth: httpapi.Anonymous, Body: httpapi.Raw, Handle: func(w http.ResponseWriter, r *http.Request, _ access.Caller) error {
		_, err := io.Copy(io.Discard, r.Body)
		return err
	}})
}

// leakRequests carry the planted number in every place of a request.
func leakRequests(method, path string) []*http.Request {
	spellings := []string{planted, "x" + planted + "y", "4242 4242 4242 4242"}
	var all []*http.Request
	add := func(method, target, body string, headers ...string) {
		r := httptest.NewRequest(method, target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("SVC-API-KEY", goodKey)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		all = append(all, r)
	}
	plain := strings.ReplaceAll(path, "{id}", "abc")
	for _, s := range spellings {
		escaped := url.PathEscape(s)
		add(method, strings.ReplaceAll(path, "{id}", escaped), `{}`)
		add(method, plain+"/"+escaped, `{}`)
		add(method, "/"+escaped+plain, `{}`)
		add("M"+strings.ReplaceAll(s, " ", ""), plain, `{}`)
		for _, q := range []string{"page=", "size=", "id=", "", "%zz="} {
			add(method, plain+"?"+q+url.QueryEscape(s), `{}`)
		}
		for _, h := range []string{
			"SVC-API-KEY", "SVC-TRACE-ID", "SVC-IDEMPOTENCY-KEY", "SVC-PROXY-KEY", "Content-Type", "Origin", "X-Forwarded-For",
			"Access-Control-Request-Method", "Access-Control-Request-Headers", "Accept", "User-Agent", "Cookie", "Host", "X-" + planted,
		} {
			add(method, plain, `{}`, h, s)
			add("OPTIONS", plain, "", "Origin", "https://a.example", "Access-Control-Request-Method", "GET", h, s)
		}
		for _, b := range []string{`{"name":%s}`, `{"name":"%s"`, `{"%s":1,"%[1]s":2}`, `{"metadata":{"%s":1}}`, `{"count":"%s"}`, `"%s"`, `%s`, `{"on":{"%s":[]}}`} {
			add(method, plain, fmt.Sprintf(b, s))
			add(method, plain, fmt.Sprintf(b, s), "Content-Type", "application/merge-patch+json")
			add(method, plain, fmt.Sprintf(b, s), "Content-Type", "text/plain")
		}
	}
	return all
}

func TestACardNumberSentAnywhereIsShownNowhere(t *testing.T) {
	e := newEdge(t, httpapi.Options{RateLimits: httpapi.RateLimits{PerAddress: httpapi.Rate{PerSecond: 1e9}}}, leakRows()...)
	// Ten digits: the times in the log have fewer.
	isShown := func(s string) bool { return strings.Contains(s, "4242424242") || strings.Contains(s, "4242 4242") }
	sent, statuses := 0, map[int]int{}
	for _, route := range e.Routes() {
		method, path, _ := strings.Cut(route.Pattern, " ")
		method = strings.ReplaceAll(method, "*", "POST")
		path = strings.ReplaceAll(path, "{rest...}", "{id}")
		for _, r := range leakRequests(method, path) {
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			sent++
			statuses[w.Code]++
			var answer strings.Builder
			_ = w.Result().Write(&answer)
			if isShown(answer.String()) {
				t.Fatalf("%s: %s shows the number:\n%s", route.Pattern, r.Method, answer.String())
			}
		}
	}
	if isShown(e.log.String()) {
		t.Error("the log shows the number")
	}
	if isShown(e.exposition()) {
		t.Error("the metrics show the number")
	}
	if got := len(e.records()); got != sent {
		t.Errorf("%d records for %d requests", got, sent)
	}
	for _, status := range []int{200, 204, 400, 401, 404, 405, 415, 500} {
		if statuses[status] == 0 {
			t.Errorf("no request ended with %d: %v", status, statuses)
		}
	}

	t.Run("the search would have found it", func(t *testing.T) {
		e := newEdge(t, httpapi.Options{},
			httpapi.Route{Pattern: "GET /fault", Auth: httpapi.Anonymous, Handle: failing(fault.New(fault.NotFound, planted))},
			httpapi.Route{Pattern: "GET /broken", Auth: httpapi.Anonymous, Handle: failing(errors.New("read 4242 4242 4242 4242"))},
			httpapi.Route{Pattern: "GET /" + planted, Auth: httpapi.Anonymous, Handle: answer})
		if w := e.do("GET", "/fault", nil); !isShown(w.Body.String()) {
			t.Error("not found in an answer that shows it")
		}
		if e.do("GET", "/broken", nil); !isShown(e.log.String()) {
			t.Error("not found in a log that shows it")
		}
		if e.do("GET", "/"+planted, nil); !isShown(e.exposition()) {
			t.Error("not found in metrics that show it")
		}
	})
}
