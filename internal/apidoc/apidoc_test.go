package apidoc_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/apidoc"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// handlers has one for each Options: they make what they serve once.
var handlers sync.Map

// call asks a handler of the rows, without a key.
func call(t *testing.T, o apidoc.Options, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	h, _ := handlers.LoadOrStore(o, httpapi.New(httpapi.Options{HeaderPrefix: o.HeaderPrefix}, apidoc.Routes(o)))
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.(*httpapi.Handler).ServeHTTP(w, r)
	return w
}

var all = apidoc.Options{Page: true, Release: "v1.2.3-4-g0123abc"}

func TestBothFormsAreTheSameDocument(t *testing.T) {
	for name, o := range map[string]apidoc.Options{
		"as it is":       {},
		"with a release": {Release: "v1.2.3-4-g0123abc"},
		"of clients":     {HeaderPrefix: "BT", Release: "1.0"},
		"odd":            {HeaderPrefix: "x-1-", Release: `a: "b" #`},
	} {
		t.Run(name, func(t *testing.T) {
			var fromYAML, fromJSON, original map[string]any
			if err := yaml.Unmarshal(call(t, o, "GET", "/openapi.yaml").Body.Bytes(), &fromYAML); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(call(t, o, "GET", "/openapi.json").Body.Bytes(), &fromJSON); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(api.OpenAPI, &original); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(through(t, fromYAML), fromJSON); diff != "" {
				t.Errorf("the YAML (-) and the JSON (+) differ:\n%s", diff)
			}
			info := fromJSON["info"].(map[string]any)
			if want := o.Release; want != "" && info["version"] != want {
				t.Errorf("the version is %v, want %v", info["version"], want)
			}
			if got, want := len(fromJSON["paths"].(map[string]any)), len(original["paths"].(map[string]any)); got != want {
				t.Errorf("it has %d paths, want %d", got, want)
			}
			if o == (apidoc.Options{}) {
				if diff := cmp.Diff(through(t, original), fromJSON); diff != "" {
					t.Errorf("api/openapi.yaml (-) and what is served (+) differ:\n%s", diff)
				}
			}
		})
	}
}

// through gives the numbers of YAML the types that those of JSON have.
func through(t *testing.T, v any) (out map[string]any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMembersComeInTheOrderOfTheFile(t *testing.T) {
	text := call(t, all, "GET", "/openapi.json").Body.String()
	last := -1
	for _, name := range []string{`"openapi"`, `"info"`, `"servers"`, `"tags"`, `"/tenants/self"`, `"/applications"`, `"/tokens"`, `"/logs"`, `"components"`} {
		at := strings.Index(text, name)
		if at <= last {
			t.Errorf("%s stands at %d, want it behind %d", name, at, last)
		}
		last = at
	}
}

func TestTheDescriptionNamesHeadersAsTheServerDoes(t *testing.T) {
	ours := regexp.MustCompile(`(?i)\bsvc\b`)
	for _, path := range []string{"/openapi.json", "/openapi.yaml"} {
		text := call(t, apidoc.Options{HeaderPrefix: "bt"}, "GET", path).Body.String()
		if found := ours.FindString(text); found != "" {
			t.Errorf("%s of a server with the prefix BT has %q in it", path, found)
		}
		for _, want := range []string{"BT-API-KEY", "BT-IDEMPOTENCY-KEY", "BT-TRACE-ID", "bt-proxy-key"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s of a server with the prefix BT has no %s", path, want)
			}
		}
	}
	if got := call(t, apidoc.Options{HeaderPrefix: "BT"}, "GET", "/openapi.yaml").Header().Get("BT-TRACE-ID"); got == "" {
		t.Error("the answer has no trace id")
	}
}

func TestWhatDoesNotChangeIsNotSentTwice(t *testing.T) {
	for _, path := range []string{"/openapi.json", "/openapi.yaml", "/docs/page.js", "/docs/page.css", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"} {
		t.Run(path, func(t *testing.T) {
			plain := call(t, all, "GET", path)
			zipped := call(t, all, "GET", path, "Accept-Encoding", "br, gzip;q=0.5")
			tag := plain.Header().Get("ETag")
			if plain.Code != 200 || tag == "" || plain.Header().Get("Cache-Control") != "no-cache" || plain.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Fatalf("the answer is %d with %v", plain.Code, plain.Header())
			}
			if zipped.Header().Get("Content-Encoding") != "gzip" || zipped.Header().Get("ETag") == tag || zipped.Header().Get("Vary") != "Accept-Encoding" {
				t.Errorf("the compressed answer has %v, want another tag", zipped.Header())
			}
			z, err := gzip.NewReader(zipped.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, plain.Body.Bytes()) {
				t.Errorf("the compressed answer is another: %v", err)
			}
			for name, c := range map[string]struct {
				method string
				header []string
				want   int
			}{
				"the same":             {"GET", []string{"If-None-Match", tag}, 304},
				"weakened on the way":  {"GET", []string{"If-None-Match", "W/" + tag}, 304},
				"one of several":       {"GET", []string{"If-None-Match", `"x", ` + tag}, 304},
				"any":                  {"GET", []string{"If-None-Match", "*"}, 304},
				"another":              {"GET", []string{"If-None-Match", `"x"`}, 200},
				"compressed meanwhile": {"GET", []string{"If-None-Match", tag, "Accept-Encoding", "gzip"}, 200},
				"not compressed":       {"GET", []string{"If-None-Match", tag, "Accept-Encoding", "gzip;q=0"}, 304},
				"the head":             {"HEAD", nil, 200},
				"the same head":        {"HEAD", []string{"If-None-Match", tag}, 304},
				"to write":             {"POST", nil, 405},
			} {
				got := call(t, all, c.method, path, c.header...)
				if got.Code != c.want {
					t.Errorf("%s: %d, want %d", name, got.Code, c.want)
				}
				if got.Code == http.StatusNotModified && (got.Body.Len() > 0 || got.Header().Get("ETag") != tag) {
					t.Errorf("%s: a body of %d bytes, or another tag", name, got.Body.Len())
				}
			}
		})
	}
}

func TestThePageMayReachThisServerAlone(t *testing.T) {
	first, second := call(t, all, "GET", "/docs"), call(t, all, "GET", "/docs/")
	policy := regexp.MustCompile(`^default-src 'none'; script-src 'nonce-([A-Z2-7]{26})'; style-src 'self'; img-src 'self' data:; connect-src 'self'; ` +
		`frame-ancestors 'none'; base-uri 'none'; form-action 'none'$`)
	m := policy.FindStringSubmatch(first.Header().Get("Content-Security-Policy"))
	if first.Code != 200 || m == nil {
		t.Fatalf("the page is %d with %v", first.Code, first.Header())
	}
	if strings.Contains(second.Header().Get("Content-Security-Policy"), m[1]) {
		t.Error("two answers have the same nonce")
	}
	if got := first.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q: a kept page would have an old nonce", got)
	}
	page := first.Body.String()
	if n := strings.Count(page, `<script nonce="`+m[1]+`" src="/docs/`); n != 2 || n != strings.Count(page, "<script") {
		t.Errorf("%d scripts have the nonce, want both", n)
	}
	for _, found := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if at := found[1]; at != "data:," {
			if got := call(t, all, "GET", at); got.Code != 200 {
				t.Errorf("the page names %s, which is %d", at, got.Code)
			}
		}
	}
	if strings.Contains(page, "://") || strings.Contains(page, "style=") {
		t.Error("the page names another origin, or has a style that the policy refuses")
	}
}

func TestNothingElseIsServed(t *testing.T) {
	for _, path := range []string{"/docs/index.html", "/docs/..%2fapidoc.go", "/docs/page%2fpage.js", "/docs/swagger-ui/LICENSE", "/docs/x"} {
		if got := call(t, all, "GET", path); got.Code != 404 {
			t.Errorf("%s is %d, want 404", path, got.Code)
		}
	}
	for path, want := range map[string]int{"/docs": 404, "/docs/page.js": 404, "/openapi.json": 200, "/openapi.yaml": 200} {
		if got := call(t, apidoc.Options{}, "GET", path); got.Code != want {
			t.Errorf("%s of a server without a page is %d, want %d", path, got.Code, want)
		}
	}
	for _, name := range []string{"swagger-ui.LICENSE", "swagger-ui.NOTICE", "swagger-ui-bundle.js.LICENSE.txt"} {
		if got := call(t, all, "GET", "/docs/"+name); got.Code != 200 || got.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s is %d", name, got.Code)
		}
	}
}
