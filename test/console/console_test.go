// Package console_test opens the console in a browser as members of a tenant,
// and does on each page what people do there.
package console_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/console"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

var update = flag.Bool("update", false, "take the pictures of docs/console.md")

// planted is the value that only a reveal may show.
const planted = "5555555555554444"

// skip skips a test that lacks something, unless the variable requires it.
func skip(t *testing.T, variable, what string) {
	t.Helper()
	if os.Getenv(variable) == "required" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// vault is a server with a tenant that has something to look at.
type vault struct {
	*keeptest.Server
	tenant string
	world
}

// world is what browser.mjs reads.
type world struct {
	Suite       string            `json:"suite"`
	Vault       string            `json:"vault"`
	Chromium    string            `json:"chromium"`
	Shots       string            `json:"shots"` // folder for screenshots; "" for none
	Links       map[string]string `json:"links"` // codes that sign in, by role
	Planted     string            `json:"planted"`
	Token       string            `json:"token"`
	Application string            `json:"application"`
	Proxy       string            `json:"proxy"`
	Reactor     string            `json:"reactor"`
}

const code = "module.exports = async (req) => ({ raw: { last4: req.args.card.number.slice(-4) } });\n"

func start(t *testing.T) *vault {
	t.Helper()
	storetest.Long(t)
	if testing.Short() {
		t.Skip("a browser takes a while")
	}
	if !console.Built() {
		skip(t, "KEEPTEST_CONSOLE", "the console is not built: 'make console' builds it")
	}
	v := &vault{Server: keeptest.Start(t, keeptest.Options{})}
	made := v.Server.Tenant(t)
	v.tenant = made.Tenant.ID
	key := made.Application.Key
	support := v.Server.Application(t, v.tenant, api.CreateApplication{Name: "Support desk", Type: "private", Rules: []api.Rule{
		{Description: "The last four digits will do", Container: "/pci/", Transform: "mask", Permissions: []string{"token:read", "token:search"}},
		{Description: "Notes of customers", Container: "/general/", Transform: "reveal", Permissions: []string{"token:read"}},
	}})
	maker := v.Server.Application(t, v.tenant, api.CreateApplication{Name: "Payments API", Type: "private", Permissions: []string{"token:create"}})
	v.make(t, maker.Key, "/tokens", `{"id":"card-of-maya","type":"card","data":{"number":"`+planted+`","expiration_month":12,"expiration_year":2031},"metadata":{"customer":"Maya"}}`)
	v.Call(t, "GET", "/tokens/card-of-maya", maker.Key, "") // a refusal for the log
	v.world = world{
		Vault: v.URL, Shots: os.Getenv("KEEPTEST_SHOTS"), Planted: planted, Token: "card-of-maya", Application: support.ID, Links: make(map[string]string),
		Reactor: v.make(t, key, "/reactors", `{"name":"Last four","code":`+quote(t, code)+`,"configuration":{}}`),
		Proxy:   v.make(t, key, "/proxies", `{"name":"Acme Pay","destination_url":"https://acmepay.example/v1"}`),
	}
	for _, role := range []string{"owner", "admin", "developer", "support", "auditor"} {
		v.Links[role] = v.LinkCode(t, v.tenant, role, role+"@shop.example")
	}
	return v
}

func quote(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// make creates something and returns its id.
func (v *vault) make(t *testing.T, key, path, body string) string {
	t.Helper()
	var made struct{ ID string }
	v.Call(t, http.MethodPost, path, key, body).Into(t, http.StatusCreated, &made)
	return made.ID
}

// browse runs a suite of browser.mjs and reports each check of it.
func (v *vault) browse(t *testing.T, suite string) {
	t.Helper()
	v.Suite = suite
	node, err := exec.LookPath("node")
	if err != nil {
		skip(t, "KEEPTEST_BROWSER", "there is no node")
	}
	if _, err := os.Stat("node_modules/playwright-core"); err != nil {
		skip(t, "KEEPTEST_BROWSER", "the browser's driver is not installed: 'make console-tools' installs it")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if v.Chromium, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		skip(t, "KEEPTEST_BROWSER", "there is no Chromium (Debian: chromium)")
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
	in, err := json.Marshal(v.world)
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
		var c struct {
			Name string
			OK   bool
			Got  json.RawMessage
		}
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
	if strings.Contains(v.Log.String(), planted) {
		t.Error("the server logged a card number")
	}
}

// pictures are the files of docs/pictures that a walk takes, by the names that
// it gives them.
var pictures = map[string]string{"overview": "console-overview", "token": "console-token", "application": "console-rules"}

func TestEachPageInABrowser(t *testing.T) {
	v := start(t)
	if *update {
		v.Shots = t.TempDir()
	}
	v.browse(t, "paths")
	for from, to := range pictures {
		file := filepath.Join("..", "..", "docs", "pictures", to+".png")
		if *update {
			picture, err := os.ReadFile(filepath.Join(v.Shots, from+".png"))
			if err == nil {
				err = os.WriteFile(file, picture, 0o644)
			}
			if err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(file); err != nil {
			t.Errorf("docs/console.md has no picture: %v; go test ./test/console -run EachPage -update takes it", err)
		}
	}
}

func TestPagesOnAPhoneAndInTheDark(t *testing.T) {
	storetest.CheckOnly(t)
	start(t).browse(t, "looks")
}

func TestEachRoleSeesItsOwnPages(t *testing.T) {
	storetest.CheckOnly(t)
	start(t).browse(t, "roles")
}
