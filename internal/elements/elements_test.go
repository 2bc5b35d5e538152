package elements_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/internal/elements"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// built skips a test when the fields are not part of the binary.
func built(t *testing.T) {
	t.Helper()
	switch {
	case elements.Built():
	case os.Getenv("KEEPTEST_ELEMENTS") == "required":
		t.Fatal("the card fields are not built")
	default:
		t.Skip("the card fields are not built: 'make elements' builds them")
	}
}

// lists are the applications of the tests: their keys and origins.
var lists = map[string][]string{"key_listed": {"https://shop.example", "http://localhost:3000"}, "key_bare": nil}

func find(_ context.Context, key string) ([]string, bool, error) {
	if key == "key_broken" {
		return nil, false, errors.New("the store does not respond")
	}
	list, known := lists[key]
	return list, known, nil
}

func get(t *testing.T, o elements.Options, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	o.Origins = find
	if o.HeaderPrefix == "" {
		o.HeaderPrefix = "SVC"
	}
	rows, err := elements.Routes(o)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	httpapi.New(httpapi.Options{CORSOrigins: []string{"https://console.example"}}, rows).ServeHTTP(w, r)
	return w
}

var hashes = regexp.MustCompile(`sha256-[A-Za-z0-9+/=]+`)

// TestHeadersOfEachKind compares all headers of each kind of pages. They are
// what keeps values in: a difference is a change of the protocol.
func TestHeadersOfEachKind(t *testing.T) {
	built(t)
	connect := map[string]string{
		"card": "https://vault.example/sessions https://vault.example/tokens", "number": "https://vault.example/sessions https://vault.example/tokens",
		"bank": "https://vault.example/sessions https://vault.example/tokens", "iban": "https://vault.example/sessions https://vault.example/tokens",
		"text": "https://vault.example/sessions https://vault.example/tokens", "expiry": "'none'", "cvc": "'none'", "reveal": "https://vault.example/sessions https://vault.example/tokens/",
	}
	for kind, connect := range connect {
		w := get(t, elements.Options{URL: "https://vault.example"}, "/elements/v1/key_listed/"+kind)
		clipboard := "()"
		if kind == "reveal" {
			clipboard = "(self)"
		}
		want := map[string]string{
			"Content-Type": "text/html; charset=utf-8",
			"Content-Security-Policy": "default-src 'none'; script-src 'HASH'; style-src 'HASH'; connect-src " + connect + "; form-action 'none'; base-uri 'none'; " +
				"frame-ancestors https://shop.example http://localhost:3000; require-trusted-types-for 'script'; trusted-types 'none'",
			"Permissions-Policy": "accelerometer=(), autoplay=(), browsing-topics=(), camera=(), clipboard-read=(), clipboard-write=" + clipboard + ", display-capture=(), geolocation=(), gyroscope=(), hid=(), " +
				"keyboard-map=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), payment=(), publickey-credentials-get=(), screen-wake-lock=(), serial=(), storage-access=(), usb=()",
			"Cross-Origin-Embedder-Policy": "require-corp", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "cross-origin",
			"Origin-Agent-Cluster": "?1", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex",
			"Cache-Control": "no-cache", "Vary": "Accept-Encoding",
		}
		got := make(map[string]string)
		for name, values := range w.Header() {
			got[name] = strings.Join(values, ", ")
		}
		for _, name := range []string{"Etag", "Content-Length", "Svc-Trace-Id"} {
			if got[name] == "" {
				t.Errorf("%s: no header %s", kind, name)
			}
			delete(got, name)
		}
		got["Content-Security-Policy"] = hashes.ReplaceAllString(got["Content-Security-Policy"], "HASH")
		if diff := cmp.Diff(want, got); diff != "" || w.Code != 200 {
			t.Errorf("%s: status %d, headers (-want +got):\n%s", kind, w.Code, diff)
		}
	}
}

// TestHeadersOfThePlayground compares all headers of the page. It has the origin
// of the vault, so no page may embed it and it runs no script but its own.
func TestHeadersOfThePlayground(t *testing.T) {
	built(t)
	options := elements.Options{URL: "https://vault.example", Dev: true, DemoKey: func() string { return `key_"<b>` }}
	w := get(t, options, "/elements/")
	want := map[string]string{
		"Content-Type": "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; script-src https://vault.example/elements/v1/elements-HASH.js https://vault.example/elements/v1/playground.js; " +
			"style-src https://vault.example/elements/v1/playground.css; img-src data:; frame-src https://vault.example/elements/v1/; form-action 'none'; base-uri 'none'; " +
			"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
		"Permissions-Policy": "accelerometer=(), autoplay=(), browsing-topics=(), camera=(), clipboard-read=(), clipboard-write=(self), display-capture=(), geolocation=(), gyroscope=(), hid=(), " +
			"keyboard-map=(), local-fonts=(), magnetometer=(), microphone=(), midi=(), payment=(), publickey-credentials-get=(), screen-wake-lock=(), serial=(), storage-access=(), usb=()",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Origin-Agent-Cluster": "?1", "Referrer-Policy": "no-referrer",
		"X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex", "Cache-Control": "no-store", "Vary": "Accept-Encoding",
	}
	got := make(map[string]string)
	for name, values := range w.Header() {
		got[name] = strings.Join(values, ", ")
	}
	delete(got, "Content-Length")
	delete(got, "Svc-Trace-Id")
	got["Content-Security-Policy"] = regexp.MustCompile(`elements-[0-9a-f]{16}`).ReplaceAllString(got["Content-Security-Policy"], "elements-HASH")
	if diff := cmp.Diff(want, got); diff != "" || w.Code != 200 {
		t.Errorf("status %d, headers (-want +got):\n%s", w.Code, diff)
	}
	page := w.Body.String()
	if strings.Contains(page, "{{") || strings.Contains(page, "<b>") || !strings.Contains(page, `value="key_&#34;&lt;b&gt;"`) {
		t.Errorf("the page was not filled in: %s", page)
	}
	if inline := regexp.MustCompile(`(?i)<script>|<style| style=| on[a-z]+=|javascript:`).FindString(page); inline != "" {
		t.Errorf("the page has something inline: %q", inline)
	}
}

// TestThePlaygroundIsOfDevelopmentMode asks a server that is not in it.
func TestThePlaygroundIsOfDevelopmentMode(t *testing.T) {
	built(t)
	for _, path := range []string{"/elements", "/elements/", "/elements/v1/playground.js", "/elements/v1/playground.css"} {
		if w := get(t, elements.Options{}, path); w.Code != 404 {
			t.Errorf("GET %s = %d, want 404", path, w.Code)
		}
		if w := get(t, elements.Options{Dev: true}, path); w.Code != 200 {
			t.Errorf("GET %s in development mode = %d, want 200", path, w.Code)
		}
	}
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func TestThePolicyHasTheHashesOfWhatIsServed(t *testing.T) {
	built(t)
	for _, kind := range []string{"card", "number", "expiry", "cvc", "bank", "iban", "text", "reveal"} {
		w := get(t, elements.Options{}, "/elements/v1/key_listed/"+kind)
		body, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
		script := regexp.MustCompile(`(?s)<script type="module">(.*)</script>`).FindStringSubmatch(body)
		style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(body)
		if script == nil || style == nil || strings.Count(body, "<script")+strings.Count(body, "<style") != 2 {
			t.Fatalf("%s: the page has not one script and one style", kind)
		}
		if !strings.Contains(policy, "script-src '"+hashOf(script[1])+"'") || !strings.Contains(policy, "style-src '"+hashOf(style[1])+"'") {
			t.Errorf("%s: the policy %s has not the hashes of the page", kind, policy)
		}
		if !strings.Contains(policy, "connect-src 'none'") && !strings.Contains(policy, "connect-src http://example.com/sessions") {
			t.Errorf("%s: without a setting the policy names the host of the request: %s", kind, policy)
		}
		if strings.Contains(body, "{{") || !strings.Contains(body, `content="https://shop.example http://localhost:3000"`) {
			t.Errorf("%s: the page was not filled in", kind)
		}
	}
}

func TestWhoGetsAPage(t *testing.T) {
	built(t)
	for name, c := range map[string]struct {
		path, frameAncestors string
		dev                  bool
		status               int
	}{
		"a list":                   {path: "key_listed/card", status: 200, frameAncestors: "frame-ancestors https://shop.example http://localhost:3000"},
		"a list in development":    {path: "key_listed/card", dev: true, status: 200, frameAncestors: "frame-ancestors https://shop.example http://localhost:3000"},
		"no list":                  {path: "key_bare/card", status: 403, frameAncestors: "frame-ancestors 'none'"},
		"no list in development":   {path: "key_bare/card", dev: true, status: 200},
		"an unknown key":           {path: "key_unknown/card", status: 404, frameAncestors: "frame-ancestors 'none'"},
		"unknown, in development":  {path: "key_unknown/card", dev: true, status: 404, frameAncestors: "frame-ancestors 'none'"},
		"an unknown kind":          {path: "key_listed/other", status: 404, frameAncestors: "frame-ancestors 'none'"},
		"a store that fails":       {path: "key_broken/card", status: 500, frameAncestors: "frame-ancestors 'none'"},
		"a key that holds a space": {path: "key%20x/card", status: 404, frameAncestors: "frame-ancestors 'none'"},
	} {
		w := get(t, elements.Options{Dev: c.dev}, "/elements/v1/"+c.path)
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != c.status || !strings.Contains(policy, c.frameAncestors) || c.frameAncestors == "" && strings.Contains(policy, "frame-ancestors") {
			t.Errorf("%s: status %d with %q, want %d with %q", name, w.Code, policy, c.status, c.frameAncestors)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: other pages may read it", name)
		}
	}
}

func TestAPageIsNotSentTwice(t *testing.T) {
	built(t)
	const path = "/elements/v1/key_listed/card"
	first := get(t, elements.Options{}, path)
	tag := first.Header().Get("ETag")
	if again := get(t, elements.Options{}, path, "If-None-Match", tag); again.Code != 304 || again.Body.Len() > 0 || again.Header().Get("Content-Security-Policy") != first.Header().Get("Content-Security-Policy") {
		t.Errorf("the page again: status %d with %d bytes", again.Code, again.Body.Len())
	}
	if other := get(t, elements.Options{URL: "https://vault.example"}, path, "If-None-Match", tag); other.Code != 200 {
		t.Errorf("with another policy: status %d, want 200", other.Code)
	}
}

func TestTheLoaderHasItsHash(t *testing.T) {
	built(t)
	var integrity struct {
		Version int
		Loader  struct{ File, Integrity string }
	}
	w := get(t, elements.Options{}, "/elements/v1/integrity.json")
	if err := json.Unmarshal(w.Body.Bytes(), &integrity); err != nil || w.Code != 200 || integrity.Version != 1 {
		t.Fatalf("integrity.json: %d %s", w.Code, w.Body)
	}
	loader := get(t, elements.Options{}, "/elements/v1/"+integrity.Loader.File, "Origin", "https://any.example")
	sum := sha512.Sum384(loader.Body.Bytes())
	if got := "sha384-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity.Loader.Integrity || loader.Code != 200 {
		t.Errorf("the loader has %s, and integrity.json %s", got, integrity.Loader.Integrity)
	}
	for name, want := range map[string]string{
		"Cache-Control": "public, max-age=31536000, immutable", "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin",
		"Content-Type": "text/javascript; charset=utf-8", "X-Content-Type-Options": "nosniff",
	} {
		if got := loader.Header().Get(name); got != want {
			t.Errorf("the loader has %s %q, want %q", name, got, want)
		}
	}
	if w := get(t, elements.Options{}, "/elements/v1/elements-0000000000000000.js"); w.Code != 404 {
		t.Errorf("another loader: status %d, want 404", w.Code)
	}
}

// TestSizes holds the limits of what a shop's page loads, compressed.
func TestSizes(t *testing.T) {
	built(t)
	for path, limit := range map[string]int{"elements.js": 5 << 10, "key_listed/card": 12 << 10, "key_listed/reveal": 12 << 10, "key_listed/bank": 12 << 10} {
		w := get(t, elements.Options{}, "/elements/v1/"+path, "Accept-Encoding", "gzip")
		size := w.Body.Len()
		if w.Header().Get("Content-Encoding") != "gzip" || size > limit {
			t.Errorf("%s takes %d bytes, %q; want at most %d, gzip", path, size, w.Header().Get("Content-Encoding"), limit)
		}
		z, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(z); err != nil || !bytes.Equal(text, get(t, elements.Options{}, "/elements/v1/"+path).Body.Bytes()) {
			t.Errorf("%s is not the same compressed: %v", path, err)
		}
		t.Logf("%s: %d bytes", path, size)
	}
}

func TestWithoutTheFieldsAServerExplainsHowToBuildThem(t *testing.T) {
	if elements.Built() {
		t.Skip("the card fields are built")
	}
	for _, path := range []string{"/v1/integrity.json", "/v1/elements.js", "/v1/key_listed/card", ""} {
		if w := get(t, elements.Options{Dev: true}, "/elements"+path); w.Code != 503 || !strings.Contains(w.Body.String(), "make build") {
			t.Errorf("%s: %d %s, want 503 and how to build them", path, w.Code, w.Body)
		}
	}
}
