// Package apidoc_test opens the API page in a browser, and holds what the
// server has embedded against the npm package that it comes from.
package apidoc_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

var update = flag.Bool("update", false, "copy the reference UI from node_modules to where the server embeds it")

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// skip skips a test that lacks something, unless there is to be nothing lacking.
func skip(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("KEEPTEST_BROWSER") == "required" {
		t.Fatal(what)
	}
	t.Skip(what)
}

const (
	from = "node_modules/swagger-ui-dist"
	to   = "../../internal/apidoc/page/swagger-ui"
)

// taken are the files of the package that the server embeds.
var taken = []string{"LICENSE", "NOTICE", "swagger-ui-bundle.js", "swagger-ui-bundle.js.LICENSE.txt", "swagger-ui.css"}

// TestTheEmbeddedFilesAreThoseOfThePackage: npm has compared the package with
// its hash in package-lock.json.
func TestTheEmbeddedFilesAreThoseOfThePackage(t *testing.T) {
	if _, err := os.Stat(from); err != nil {
		skip(t, "the reference UI is not installed: 'make apidoc' installs it")
	}
	for _, name := range taken {
		want, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(filepath.Join(to, name), want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not that of the package: %v; see go test ./test/apidoc -run Embedded -update", name, err)
		}
	}
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(taken, e.Name()) {
			t.Errorf("%s is embedded and not compared", e.Name())
		}
	}
}

// world is what browser.js reads.
type world struct {
	URL      string `json:"url"`
	Header   string `json:"header"`
	Key      string `json:"key"`
	Chromium string `json:"chromium"`
	Shots    string `json:"shots"` // folder for screenshots; "" for none
}

// traffic is what a browser did and what went wrong.
type traffic struct {
	Requests []struct {
		Method, URL string
		Key         bool // it had the key in its header
	}
	Failures, Complaints []string
}

// report is what browser.js prints.
type report struct {
	traffic
	Title      string
	Tags       []string
	Operations int
	Filled     []string // the parameters of a list, with what stands in their fields
	Example    string
	Status     string
	Answer     string
	Shown      string // all of the operation, the answer included
	Kept       string // what the browser keeps of the page, and its address
	Violations []string
	Clean      struct{ Requests, Failures, Complaints int } // how many there were before the attempts
	Refused    []string
	Overflow   int
	Dark       bool
	Fresh      int
	Again      traffic
}

func open(t *testing.T, w world) (r report) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		skip(t, "there is no node")
	}
	if _, err := os.Stat("node_modules/playwright-core"); err != nil {
		skip(t, "the browser's driver is not installed: 'make apidoc' installs it")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if w.Chromium, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		skip(t, "there is no Chromium (Debian: chromium)")
	}
	if _, err := os.ReadFile("browser.js"); err != nil { // so that a change of it is not answered from the test cache
		t.Fatal(err)
	}
	in, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	var words bytes.Buffer
	cmd := exec.CommandContext(t.Context(), node, "browser.js")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), &words
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node browser.js: %v: %s", err, words.String())
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("node browser.js printed %s: %v", out, err)
	}
	return r
}

func TestThePageInABrowser(t *testing.T) {
	storetest.Long(t)
	if testing.Short() {
		t.Skip("a browser takes a while")
	}
	const prefix = "BT" // what people see is what this server takes, not what the file says
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"header_prefix": prefix}})
	key := k.Application(t, k.Tenant(t).Tenant.ID, api.CreateApplication{Type: "private", Permissions: []string{"token:create", "token:read"}}).Key
	r := open(t, world{URL: k.URL, Header: api.Header(prefix, api.APIKey), Key: key, Shots: os.Getenv("KEEPTEST_SHOTS")})

	if want := []string{"Tenant", "Applications", "Keys", "Sessions", "Members", "Sign-in", "Access", "Permissions", "Tokens", "Reactors", "Proxies", "Reports", "Logs", "Events", "Webhooks",
		"Card fields", "Documentation", "Console", "Operator"}; !slices.Equal(r.Tags, want) {
		t.Errorf("the groups are %v, want %v", r.Tags, want)
	}
	if r.Title != "Tokenkeep API" || r.Operations != len(k.Routes()) {
		t.Errorf("the page is called %q and shows %d operations, want Tokenkeep API and %d", r.Title, r.Operations, len(k.Routes()))
	}
	if want := []string{"id=", "type=", "container=", "fingerprint=", "metadata={}", "page=1", "size=20", "transform="}; !slices.Equal(r.Filled, want) {
		t.Errorf("the fields of a list have %v, want %v: examples would be sent as filters", r.Filled, want)
	}
	if !strings.Contains(r.Example, "4242424242424242") || r.Status != "201" || !strings.Contains(r.Answer, "XXXXXXXXXXXX4242") {
		t.Errorf("the example is %s; trying it is %s with %s, want 201 and the masked card", r.Example, r.Status, r.Answer)
	}

	// Nothing went anywhere else or wrong, and one request had the key.
	want := []string{"GET /docs", "GET /docs/page.css", "GET /docs/page.js", "GET /docs/swagger-ui-bundle.js", "GET /docs/swagger-ui.css", "GET /openapi.json", "POST /tokens with the key"}
	if diff := cmp.Diff(want, paths(t, k.URL, r.traffic)); diff != "" || r.Clean.Requests != len(want) {
		t.Errorf("the requests (+) are not those that are due (-):\n%s", diff)
	}
	if r.Clean.Failures+r.Clean.Complaints+len(r.Violations)+len(r.Again.Failures)+len(r.Again.Complaints) > 0 {
		t.Errorf("the browser complained: %v, %v, %v, %v", r.Failures, r.Complaints, r.Violations, r.Again)
	}
	paths(t, k.URL, r.Again)

	if got := []string{r.Kept, r.Shown, k.Log.String()}; slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, key) }) {
		t.Errorf("the key is in what the browser keeps, in what the page shows, or in the server's log: %s", got[:2])
	}
	if want := `[[],[],"","` + k.URL + `/docs#/Tokens/createToken",null,"",[],[]]{"cookies":[],"origins":[]}`; r.Kept != want {
		t.Errorf("the browser keeps %s, want %s", r.Kept, want)
	}
	if want := []string{"refused", "refused", "connect-src", "script-src-elem"}; !slices.Equal(r.Refused, want) {
		t.Errorf("a script without the nonce and a request to another origin: %v, want %v", r.Refused, want)
	}
	if r.Overflow > 0 || !r.Dark || r.Fresh > 0 {
		t.Errorf("on a phone %d pixels stick out; dark %t; %d operations have a key on a page just opened", r.Overflow, r.Dark, r.Fresh)
	}
}

func TestThePageCanBeTurnedOff(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{Settings: map[string]string{"api_page": "false"}})
	for path, want := range map[string]int{"/docs": 404, "/docs/page.js": 404, "/openapi.json": 200, "/openapi.yaml": 200} {
		if got := k.Call(t, "GET", path, "", ""); got.Status != want {
			t.Errorf("GET %s = %d, want %d", path, got.Status, want)
		}
	}
}

// paths returns what was asked of the server, each once and sorted; a request
// to any other origin fails the test.
func paths(t *testing.T, origin string, all traffic) (list []string) {
	t.Helper()
	for _, r := range all.Requests {
		u, err := url.Parse(r.URL)
		if err != nil || u.Scheme+"://"+u.Host != origin {
			t.Errorf("the browser asked another origin: %s", r.URL)
			continue
		}
		line := r.Method + " " + u.RequestURI()
		if r.Key {
			line += " with the key"
		}
		list = append(list, line)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
