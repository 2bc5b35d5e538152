// Package elements_test opens a shop that embeds the card fields in a browser,
// types cards, and attacks the fields as the page around them could.
package elements_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/elements"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// skip skips a test that lacks something, unless the variable requires it.
func skip(t *testing.T, variable, what string) {
	t.Helper()
	if os.Getenv(variable) == "required" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// built skips a test when the fields are not part of the binary.
func built(t *testing.T) {
	t.Helper()
	if !elements.Built() {
		skip(t, "KEEPTEST_ELEMENTS", "the card fields are not built: 'make elements' builds them")
	}
}

// vault is a server with a tenant that has applications for a shop.
type vault struct {
	*keeptest.Server
	public, private string
	other           string // the key of another public application of the tenant
	shop            string // an origin on the list, whose page has a strict policy
	loose           string // an origin on the list, whose page has no policy
	stranger        string // an origin that is not on the list
}

func start(t *testing.T) *vault {
	t.Helper()
	built(t)
	v := &vault{Server: keeptest.Start(t, keeptest.Options{})}
	v.shop, v.loose, v.stranger = v.newShop(t, true), v.newShop(t, false), v.newShop(t, false)
	tenant := v.Tenant(t).Tenant.ID
	v.public, v.other = v.application(t, tenant, v.shop, v.loose), v.application(t, tenant, v.loose)
	v.private = v.Application(t, tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read"}},
	}}).Key
	return v
}

// application makes a public application, and returns its key.
func (v *vault) application(t *testing.T, tenant string, origins ...string) string {
	t.Helper()
	return v.Application(t, tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}, AllowedOrigins: origins}).Key
}

// newShop starts a shop and returns its origin, which is of another site than
// the vault's.
func (v *vault) newShop(t *testing.T, strict bool) string {
	t.Helper()
	page, err := os.ReadFile("shop.html")
	if err != nil {
		t.Fatal(err)
	}
	var integrity struct {
		Loader struct{ File, Integrity string }
	}
	if err := json.Unmarshal([]byte(v.Call(t, "GET", "/elements/v1/integrity.json", "", "").Body), &integrity); err != nil {
		t.Fatalf("integrity.json: %v", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /favicon.ico", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if strict {
			w.Header().Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; script-src 'self' %[1]s/elements/v1/; style-src 'unsafe-inline'; connect-src 'self'; "+
				"frame-src %[1]s/elements/v1/%[2]s/; img-src 'self' data:; form-action 'none'; base-uri 'none'", v.URL, v.public))
		}
		if coep := r.URL.Query().Get("coep"); coep != "" {
			w.Header().Set("Cross-Origin-Embedder-Policy", coep)
			w.Header().Set("Cross-Origin-Opener-Policy", "same-origin")
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = strings.NewReplacer("{{loader}}", v.URL+"/elements/v1/"+integrity.Loader.File, "{{integrity}}", integrity.Loader.Integrity,
			"{{key}}", v.public, "{{vault}}", v.URL).WriteString(w, string(page))
	})
	mux.HandleFunc("GET /shop.js", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "shop.js") })
	mux.HandleFunc("GET /blank", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>Elsewhere</title>")
	})
	mux.HandleFunc("POST /authorize", v.authorize)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return "http://localhost:" + strconv.Itoa(s.Listener.Addr().(*net.TCPAddr).Port)
}

// authorize is what the server of a shop does: it lets a session create cards
// or, where the page names a token, reveal exactly that one.
func (v *vault) authorize(w http.ResponseWriter, r *http.Request) {
	var in struct{ Nonce, Token string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	rules := `[{"container":"/","transform":"mask","permissions":["token:create"]}]`
	if in.Token != "" {
		rules = `[{"transform":"reveal","permissions":["token:read"],"conditions":[{"attribute":"id","operator":"equals","value":` + strconv.Quote(in.Token) + `}]}]`
	}
	request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, v.URL+"/sessions/authorize", strings.NewReader(`{"nonce":`+strconv.Quote(in.Nonce)+`,"rules":`+rules+`}`))
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	request.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), v.private)
	request.Header.Set("Content-Type", api.MediaJSON)
	response, err := v.Client.Do(request)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = response.Body.Close()
	w.WriteHeader(response.StatusCode)
}

// world is what browser.mjs reads.
type world struct {
	Suite    string `json:"suite"`
	Vault    string `json:"vault"`
	Shop     string `json:"shop"`
	Loose    string `json:"loose"`
	Stranger string `json:"stranger"`
	Key      string `json:"key"`
	Private  string `json:"private"`
	Other    string `json:"other"`
	Chromium string `json:"chromium"`
	Firefox  string `json:"firefox"` // "" for Chromium
	Shots    string `json:"shots"` // folder for screenshots; "" for none
	Rounds   int    `json:"rounds"`
	Seed     uint64 `json:"seed"`
}

// check is one line of what browser.mjs prints.
type check struct {
	Name string
	OK   bool
	Got  json.RawMessage
}

// browse runs a suite of browser.mjs in Chromium and reports each check of it.
func (v *vault) browse(t *testing.T, suite string, rounds int, seed uint64) {
	t.Helper()
	chromium, err := find("chromium", "chromium-browser", "google-chrome")
	if err != nil {
		skip(t, "KEEPTEST_BROWSER", "there is no Chromium (Debian: chromium)")
	}
	v.run(t, world{Suite: suite, Rounds: rounds, Seed: seed, Chromium: chromium})
}

// browseFirefox does the same in Firefox, which only 'make check' installs.
func (v *vault) browseFirefox(t *testing.T, suite string, rounds int, seed uint64) {
	t.Helper()
	firefox, err := find("firefox-esr", "firefox")
	if err != nil {
		skip(t, "KEEPTEST_FIREFOX", "there is no Firefox (Debian: firefox-esr)")
	}
	v.run(t, world{Suite: suite, Rounds: rounds, Seed: seed, Firefox: firefox})
}

// find returns the path of the first program that there is.
func find(names ...string) (path string, err error) {
	for _, name := range names {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}

// run runs browser.mjs.
func (v *vault) run(t *testing.T, w world) {
	t.Helper()
	w.Vault, w.Shop, w.Loose, w.Stranger = v.URL, v.shop, v.loose, v.stranger
	w.Key, w.Private, w.Other, w.Shots = v.public, v.private, v.other, os.Getenv("KEEPTEST_SHOTS")
	node, err := exec.LookPath("node")
	if err != nil {
		skip(t, "KEEPTEST_BROWSER", "there is no node")
	}
	if _, err := os.Stat("node_modules/playwright-core"); err != nil {
		skip(t, "KEEPTEST_BROWSER", "the browser's driver is not installed: 'make elements-tools' installs it")
	}
	sources, err := filepath.Glob("*.mjs")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources { // so that the test cache sees changes
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	in, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	cmd := exec.CommandContext(t.Context(), node, "browser.mjs")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &words
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("node browser.mjs: %v: %s", err, words.String())
	}
	checks := 0
	for line := range strings.Lines(string(out)) {
		var c check
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("browser.mjs printed %s: %v", line, err)
		}
		checks++
		if !c.OK {
			t.Errorf("%s: %s", c.Name, c.Got)
		}
	}
	if checks == 0 {
		t.Error("no check was made")
	}
	t.Logf("%d checks", checks)
	for _, number := range []string{"4000056655665556", "378282246310005", "4242424242424242"} {
		if strings.Contains(v.Log.String(), number) {
			t.Errorf("the server logged a card number")
		}
	}
}

// long leaves a browser test out of a plain 'go test'.
func long(t *testing.T) {
	t.Helper()
	storetest.Long(t)
	if testing.Short() {
		t.Skip("a browser takes a while")
	}
}

func TestEachElementInABrowser(t *testing.T) {
	long(t)
	start(t).browse(t, "paths", 1, 0)
}

// TestFieldsInFirefox runs the suites of what fields do. That of lost responses
// is left to Chromium: it holds requests back, which this driver cannot do there.
func TestFieldsInFirefox(t *testing.T) {
	storetest.CheckOnly(t)
	for _, suite := range []string{"paths", "edits", "reveal", "siblings"} {
		t.Run(suite, func(t *testing.T) { start(t).browseFirefox(t, suite, 500, storetest.Randomly(t).Uint64N(1<<53)) })
	}
}

func TestThePlaygroundInABrowser(t *testing.T) {
	long(t)
	built(t)
	k := keeptest.Start(t, keeptest.Options{})
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := &vault{Server: k, public: keys.PublicKey, private: keys.PrivateKey}
	v.browse(t, "playground", 1, 0)
}

func TestFieldsAreAccessible(t *testing.T) {
	storetest.CheckOnly(t)
	start(t).browse(t, "access", 1, 0)
}

func TestHostilePagesLearnNothing(t *testing.T) {
	storetest.CheckOnly(t)
	start(t).browse(t, "attacks", 1, 0)
}

func TestOneSubmitMakesOneToken(t *testing.T) {
	storetest.CheckOnly(t)
	start(t).browse(t, "retry", 1, 0)
}

func TestRandomEditsAreAsTheModelHasThem(t *testing.T) {
	long(t)
	start(t).browse(t, "edits", storetest.Rounds(1000, 10000), storetest.Randomly(t).Uint64N(1<<53))
}

func TestARevealedCardIsForItsHolder(t *testing.T) {
	storetest.CheckOnly(t)
	start(t).browse(t, "reveal", 1, 0)
}

// unsafe reports whether a response is a document that a page could embed and
// that would run scripts with the origin of the fields beside it. Such a
// document could read the fields.
func unsafe(h http.Header) bool {
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	switch media {
	case "text/html", "application/xhtml+xml", "image/svg+xml", "text/xml", "application/xml":
	default:
		return h.Get("X-Content-Type-Options") != "nosniff"
	}
	for directive := range strings.SplitSeq(h.Get("Content-Security-Policy"), ";") {
		if name, value, _ := strings.Cut(strings.TrimSpace(directive), " "); name == "sandbox" && !strings.Contains(value, "allow-same-origin") || name == "frame-ancestors" && value == "'none'" {
			return false
		}
	}
	return true
}

// TestNoDocumentOfTheVaultCanBeEmbeddedBesideTheFields walks over the table of
// routes, with a key and without one.
func TestNoDocumentOfTheVaultCanBeEmbeddedBesideTheFields(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	tenant := k.Tenant(t)
	parameters := strings.NewReplacer("{file}", "page.js", "{id}", "some-id", "{rest...}", "x", "{kind}", "other", "{key}", "key_test_pub_x")
	seen := 0
	for _, row := range k.Routes() {
		method, path, _ := strings.Cut(row.Pattern, " ")
		if method == "*" {
			method = http.MethodGet
		}
		if row.Pattern == "DELETE /tenants/self" {
			continue // the walk needs it
		}
		for _, key := range []string{"", tenant.Application.Key} {
			request, err := http.NewRequestWithContext(t.Context(), method, k.URL+regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(parameters.Replace(path), "x"), nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Accept", "text/html")
			if key != "" {
				request.Header.Set(api.Header(api.DefaultPrefix, api.APIKey), key)
			}
			response, err := http.DefaultTransport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			seen++
			if unsafe(response.Header) {
				t.Errorf("%s: a page could embed the response %d: %v", row.Pattern, response.StatusCode, response.Header)
			}
		}
	}
	if seen < 50 {
		t.Errorf("the walk made %d requests", seen)
	}
	if !unsafe(http.Header{"Content-Type": {"text/html"}, "X-Content-Type-Options": {"nosniff"}}) || unsafe(http.Header{"Content-Type": {"text/html"}, "Content-Security-Policy": {"default-src 'none'; frame-ancestors 'none'"}}) {
		t.Error("the walk does not tell a safe document from an unsafe one")
	}
}

func TestTypingAndPasting(t *testing.T) {
	storetest.CheckOnly(t)
	start(t).browse(t, "typing", 1, 0)
}

func TestWhatSurroundsTheFields(t *testing.T) {
	storetest.CheckOnly(t)
	if _, err := os.Stat("../../web/packages/node_modules/esbuild"); err != nil {
		skip(t, "KEEPTEST_BROWSER", "the tools of web/packages are not installed: 'make packages' installs them")
	}
	start(t).browse(t, "around", 1, 0)
}

func TestFramesBesideEachOtherAndFonts(t *testing.T) {
	storetest.CheckOnly(t)
	start(t).browse(t, "siblings", 1, 0)
}

// TestTheSameSourcesGiveTheSameBytes builds the fields twice. An operator who
// builds a release again gets the hashes that shops have in their pages.
func TestTheSameSourcesGiveTheSameBytes(t *testing.T) {
	storetest.CheckOnly(t)
	built(t)
	node, err := exec.LookPath("node")
	if err != nil {
		skip(t, "KEEPTEST_ELEMENTS", "there is no node")
	}
	again, was := t.TempDir(), filepath.Join("..", "..", "internal", "elements", "dist")
	if out, err := exec.CommandContext(t.Context(), node, filepath.Join("..", "..", "web", "elements", "build.mjs"), again).CombinedOutput(); err != nil {
		t.Fatalf("node build.mjs: %v: %s", err, out)
	}
	files, err := os.ReadDir(again)
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files were built: %v", len(files), err)
	}
	for _, f := range files {
		want, err := os.ReadFile(filepath.Join(was, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(again, f.Name())); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs when it is built again: %v", f.Name(), err)
		}
	}
}
