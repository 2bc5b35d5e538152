package console_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/console"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
)

// built skips a test when the console is not part of the binary.
func built(t *testing.T) {
	t.Helper()
	switch {
	case console.Built():
	case os.Getenv("KEEPTEST_CONSOLE") == "required":
		t.Fatal("the console is not built")
	default:
		t.Skip("the console is not built: 'make console' builds it")
	}
}

func get(t *testing.T, elements, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	h := httpapi.New(httpapi.Options{HeaderPrefix: "SVC"}, console.Routes(elements))
	r := httptest.NewRequestWithContext(t.Context(), "GET", path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestBrowsersAreLedToTheConsole(t *testing.T) {
	page := get(t, "", "/", "Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	if page.Code != 200 || !strings.Contains(page.Body.String(), `url=/console/"`) || !strings.Contains(page.Body.String(), `<a href="/console/">`) {
		t.Errorf("a browser gets %d %q, want a page that leads to the console", page.Code, page.Body)
	}
	if got := page.Header().Get("Content-Security-Policy"); got != "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" {
		t.Errorf("the policy is %q", got)
	}
	for _, accept := range []string{"", "*/*", "application/json"} {
		if got := get(t, "", "/", "Accept", accept); got.Code != 404 || got.Header().Get("Content-Type") != "application/json" {
			t.Errorf("a program that accepts %q gets %d, want a 404 in JSON", accept, got.Code)
		}
	}
}

func TestWithoutABuildThePageSaysSo(t *testing.T) {
	if console.Built() {
		t.Skip("the console is built")
	}
	page := get(t, "", "/console/", "Accept", "text/html")
	if page.Code != 503 || !strings.Contains(page.Body.String(), "is not part of this binary") || !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") {
		t.Errorf("got %d %q, want a page that explains it", page.Code, page.Body)
	}
}

var policyForm = regexp.MustCompile(`^default-src 'none'; script-src 'nonce-([A-Z2-7]{26})'; style-src 'nonce-([A-Z2-7]{26})'; font-src 'self'; img-src 'self'; connect-src 'self'; ` +
	`frame-src (\S+); base-uri 'none'; form-action 'none'; frame-ancestors 'none'$`)

// TestThePageIsOnlyForItself checks that each response has a nonce of its own,
// which names all its scripts and styles, and that nothing stores the page.
func TestThePageIsOnlyForItself(t *testing.T) {
	built(t)
	seen := make(map[string]bool)
	for path, elements := range map[string]string{"/console": "", "/console/": "", "/console/tokens/a%2Fb": "https://fields.example", "/console/sign-in": ""} {
		page := get(t, elements, path, "Accept-Encoding", "identity")
		h, text := page.Header(), page.Body.String()
		m := policyForm.FindStringSubmatch(h.Get("Content-Security-Policy"))
		if page.Code != 200 || m == nil || m[1] != m[2] {
			t.Fatalf("GET %s → %d with the policy %q", path, page.Code, h.Get("Content-Security-Policy"))
		}
		if want := map[bool]string{true: "'self'", false: elements}[elements == ""]; m[3] != want {
			t.Errorf("GET %s: frames of %s, want %s", path, m[3], want)
		}
		if seen[m[1]] {
			t.Error("two responses have the same nonce")
		}
		seen[m[1]] = true
		if strings.Contains(text, "__NONCE__") || regexp.MustCompile(`<script(>|[^>]*[^-]>[^<])`).MatchString(text) || strings.Contains(text, "<style") {
			t.Errorf("GET %s: the page has an inline script or style, or no nonce", path)
		}
		for _, tag := range regexp.MustCompile(`<(script|link rel="(stylesheet|modulepreload)")[^>]*>`).FindAllString(text, -1) {
			if !strings.Contains(tag, `nonce="`+m[1]+`"`) || !regexp.MustCompile(`(src|href)="/console/assets/[^"]+-[A-Za-z0-9_-]{8}\.(js|css)"`).MatchString(tag) {
				t.Errorf("GET %s: %s has another nonce, or no hash in its name", path, tag)
			}
		}
		for name, want := range map[string]string{
			"Cache-Control": "no-store", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": "", "Content-Type": "text/html; charset=utf-8",
		} {
			if h.Get(name) != want {
				t.Errorf("GET %s: %s is %q, want %q", path, name, h.Get(name), want)
			}
		}
	}
}

func TestFilesAreStoredForGood(t *testing.T) {
	built(t)
	files := regexp.MustCompile(`/console/assets/[^"]+`).FindAllString(get(t, "", "/console/").Body.String(), -1)
	if len(files) < 4 {
		t.Fatalf("the page has %d files", len(files))
	}
	for _, file := range files {
		plain, zipped := get(t, "", file, "Accept-Encoding", "identity"), get(t, "", file, "Accept-Encoding", "gzip")
		if plain.Code != 200 || plain.Header().Get("Cache-Control") != "public, max-age=31536000, immutable" || plain.Header().Get("Vary") != "Accept-Encoding" ||
			strings.Contains(plain.Header().Get("Content-Type"), "octet-stream") {
			t.Errorf("GET %s → %d with %v", file, plain.Code, plain.Header())
		}
		z, err := gzip.NewReader(zipped.Body)
		if err != nil {
			t.Fatalf("GET %s: %v", file, err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, plain.Body.Bytes()) {
			t.Errorf("GET %s: the compressed form differs (%v)", file, err)
		}
	}
	for _, file := range []string{"/console/assets/x.js", "/console/assets/", "/console/assets/../index.html", "/console/assets/..%2Findex.html", "/console/assets//"} {
		if got := get(t, "", file); got.Code != 404 {
			t.Errorf("GET %s → %d, want 404", file, got.Code)
		}
	}
}

// TestTheFirstScriptsAreSmall bounds what a browser loads before it shows
// anything: the scripts that the page itself names.
func TestTheFirstScriptsAreSmall(t *testing.T) {
	built(t)
	total := 0
	for _, m := range regexp.MustCompile(`(?:src|href)="(/console/assets/[^"]+\.js)"`).FindAllStringSubmatch(get(t, "", "/console/", "Accept-Encoding", "identity").Body.String(), -1) {
		total += get(t, "", m[1], "Accept-Encoding", "gzip").Body.Len()
	}
	if total == 0 || total > 200<<10 {
		t.Errorf("the first scripts are %d bytes compressed, want at most %d", total, 200<<10)
	}
}
