package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"unicode/utf8"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// FuzzDecode holds that what is taken is valid by another decoder's judgement,
// not too deep and kept as sent, and that what is refused is the caller's fault.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"name":"a","count":1,"rules":[{"container":"/a/"}],"metadata":{"k":"v"},"data":[1.10,1e400]}`, `null`, `[]`, `{"name":1}`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[[[[[[]]]]]]`, "\xff", `"\ud800"`, ` {"data":null} `, `{}{}`, `{"rules":[null]}`, `-0`, `{"share":1e999}`,
	} {
		f.Add([]byte(s))
	}
	var got document
	handler := httpapi.New(httpapi.Options{MaxDepth: 5, MaxBody: 1 << 16}, []httpapi.Route{
		{Pattern: "POST /x", Auth: httpapi.Anonymous, Body: httpapi.JSON, Handle: func(_ http.ResponseWriter, r *http.Request, _ access.Caller) error {
			got = document{}
			return httpapi.Decode(r, &got)
		}},
	})
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest("POST", "/x", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch w.Code {
		case 200:
			if !json.Valid(body) || !utf8.Valid(body) {
				t.Errorf("Decode(%q) took what is not JSON", body)
			}
			if got.Data != nil && !bytes.Contains(body, got.Data) {
				t.Errorf("Decode(%q) changed the data to %q", body, got.Data)
			}
			depth, most := 0, 0
			d := json.NewDecoder(bytes.NewReader(body))
			for token, err := d.Token(); err == nil; token, err = d.Token() {
				switch token {
				case json.Delim('{'), json.Delim('['):
					depth++
				case json.Delim('}'), json.Delim(']'):
					depth--
				}
				most = max(most, depth)
			}
			if most > 5 {
				t.Errorf("Decode(%q) took %d levels", body, most)
			}
		case 400, 413:
		default:
			t.Errorf("Decode(%q) = %d %s", body, w.Code, w.Body)
		}
	})
}

// FuzzRoute holds that no path makes the router panic, redirect or lose a
// trace id, and that an id arrives decoded once.
func FuzzRoute(f *testing.F) {
	for _, s := range []string{"/", "/tokens", "/tokens/", "/tokens/a%2Fb", "//tokens", "/tokens/..", "/proxy/%2e%2e/a", "/tokens/%zz", "/tokens/%00", "*", "", "/tokens/a/b/c", "/%74okens"} {
		f.Add("GET", s)
	}
	f.Add("OPTIONS", "/tokens")
	f.Add("*", "/proxy/")
	var seen string
	show := func(_ http.ResponseWriter, r *http.Request, _ access.Caller) error {
		seen = r.PathValue("id")
		return nil
	}
	handler := httpapi.New(httpapi.Options{}, []httpapi.Route{
		{Pattern: "GET /tokens", Auth: httpapi.Anonymous, Handle: answer},
		{Pattern: "GET /tokens/{id}", Auth: httpapi.Anonymous, Handle: show},
		{Pattern: "POST /tokens/search", Auth: httpapi.Anonymous, Handle: answer},
		{Pattern: "GET /applications/{id}/keys/{key}", Auth: httpapi.Anonymous, Handle: answer},
		{Pattern: "* /proxy/{rest...}", Auth: httpapi.Anonymous, Handle: answer},
	})
	f.Fuzz(func(t *testing.T, method, path string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL = method, &url.URL{Path: path, RawPath: path}
		if u, err := url.ParseRequestURI(path); err == nil {
			r.URL = u
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch w.Code {
		case 200, 204, 400, 404, 405:
		default:
			t.Errorf("%q %q = %d", method, path, w.Code)
		}
		if w.Header().Get("SVC-TRACE-ID") == "" || w.Header().Get("Location") != "" {
			t.Errorf("%q %q has the headers %v", method, path, w.Header())
		}

		seen = ""
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/tokens/"+url.PathEscape("id-"+path), nil))
		if want := "id-" + path; utf8.ValidString(want) && !bytes.Contains([]byte(want), []byte{0}) && seen != want {
			t.Errorf("the id %q arrived as %q", want, seen)
		}
	})
}
