package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/origin"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// besideServer is a till whose server runs inside the test.
func besideServer(t *testing.T, settings map[string]string) (*till, *keeptest.Server) {
	t.Helper()
	k := keeptest.Start(t, keeptest.Options{KeyCache: 10 * time.Millisecond, Settings: settings})
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := &till{t: t, data: k.Data, keys: keys}
	t.Setenv("TOKENKEEP_URL", keys.BaseURL)
	x.as(keys.ManagementKey)
	return x, k
}

// as goes on with another key.
func (x *till) as(key string) { x.t.Setenv("TOKENKEEP_API_KEY", key) }

// refused runs commands that must fail, and repeat nothing that was typed.
func (x *till) refused(want map[string]refusedCase) {
	x.t.Helper()
	for name, r := range want {
		got := given(x.t, r.in, r.args...)
		if got.code != r.code || got.err != "tokenkeep: "+r.err+"\n" || got.out != "" || strings.Contains(got.err, planted) {
			x.t.Errorf("%s: tokenkeep %s = %+v, want %d %q", name, strings.Join(r.args, " "), got, r.code, r.err)
		}
	}
}

type refusedCase struct {
	args []string
	in   string
	code int
	err  string
}

func TestTheOwnTenantFromTheCommandLine(t *testing.T) {
	x, _ := besideServer(t, nil)
	out := x.done("", "tenant", "get")
	wantLine(t, out, `tenant +`+x.keys.TenantID)
	wantLine(t, out, `settings\.deduplicate_tokens +false`)
	var got api.Tenant
	x.read(&got, "", "tenant", "update", "--set", "deduplicate_tokens=true", "--set", "cvc_retention=10m")
	if got.Name != "demo" || got.Settings["deduplicate_tokens"] != "true" || got.Settings["cvc_retention"] != "10m" {
		t.Errorf("tenant update = %+v", got)
	}
	x.read(&got, "", "tenant", "update", "--name", "Acme", "--set", "cvc_retention=")
	if got.Name != "Acme" || got.Settings["deduplicate_tokens"] != "true" || got.Settings["cvc_retention"] != "1h" {
		t.Errorf("tenant update = %+v", got)
	}
	x.as(x.keys.PrivateKey)
	x.done(`["a","b",{"type":"card_number","data":"`+planted+`"}]`, "tokenize")
	x.as(x.keys.ManagementKey)
	out = x.done("", "tenant", "usage")
	wantLine(t, out, `card_number +1`)
	wantLine(t, out, `token +2`)
	wantLine(t, out, `all +3`)
	var usage api.Usage
	if x.read(&usage, "", "tenant", "usage"); usage.TotalTokens != 3 {
		t.Errorf("tenant usage --json = %+v", usage)
	}
	var secret, rotated api.CallbackSecret
	x.read(&secret, "", "tenant", "callback-secret")
	x.read(&rotated, "", "tenant", "callback-secret", "--rotate")
	if secret.Secret == "" || rotated.PreviousSecret != secret.Secret || rotated.Secret == secret.Secret {
		t.Error("tenant callback-secret --rotate did not rotate")
	}
	out = x.done("", "tenant", "callback-secret")
	wantLine(t, out, `secret +whsec_\S+`)
	wantLine(t, out, `which signs until +\S+ \S+`)

	x.refused(map[string]refusedCase{
		"no value":          {[]string{"tenant", "update", "--set", planted}, "", 2, errSetting.Error()},
		"an unknown one":    {[]string{"tenant", "update", "--set", "colour=blue"}, "", 11, "settings holds a setting that does not exist"},
		"not really":        {[]string{"tenant", "delete", "self"}, "", 2, errReally.Error()},
		"of nobody":         {[]string{"tenant", "delete", planted, "--yes", "--data", t.TempDir()}, "", 9, "no server is running on this data folder"},
		"not as a private":  {[]string{"tenant", "get", "--key-file", mustWrite(t, filepath.Join(t.TempDir(), "k"), x.keys.PrivateKey)}, "", 11, "missing permission tenant:read"},
		"an empty variable": {[]string{"tenant", "delete", "", "--yes", "--data", x.data}, "", 2, errWhichTenant.Error()},
	})
	if out := x.done("", "tenant", "delete", "self", "--yes"); !strings.Contains(out, "destroyed") {
		t.Errorf("tenant delete self printed %s", out)
	}
	if got := given(t, "", "tenant", "get"); got.code != 11 || got.err != "tokenkeep: unknown API key\n" {
		t.Errorf("tenant get of what was deleted = %+v", got)
	}
}

func TestApplicationsOverTheAPI(t *testing.T) {
	x, k := besideServer(t, nil)
	rules := mustWrite(t, filepath.Join(t.TempDir(), "rules.json"), `[{"container":"/pci/","transform":"mask","permissions":["token:read"]}]`)
	out := x.done("", "application", "create", "checkout", "--permission", "token:create", "--rules", rules, "--expires-at", "2099-01-01T00:00:00Z")
	key := anyKey.FindString(out)
	wantLine(t, out, `permissions +token:create`)
	wantLine(t, out, `rule 0 +token:read on /pci/: mask`)
	wantLine(t, out, `expires +2099-01-01 00:00:00`)
	if k.Call(t, "GET", "/applications/key", key, "").Status != 200 || !strings.Contains(out, "shown this once") {
		t.Errorf("application create printed\n%s", anyKey.ReplaceAllString(out, "…"))
	}
	var made, bare api.Application
	x.as(key)
	x.read(&made, "", "application", "get") // that of the key
	if made.Name != "checkout" || made.Key != "" {
		t.Errorf("application get = %+v", made)
	}
	x.as(x.keys.ManagementKey)
	x.read(&bare, "", "application", "create", "bare", "--type", "public", "--permission", "token:create", "--no-key")
	if bare.Key != "" || len(bare.Keys) != 0 {
		t.Errorf("application create --no-key = %+v", bare)
	}
	wantLine(t, x.done("", "application", "list", "--type", "private"), made.ID+` +checkout +private +1 +1 +1`)
	var list []api.Application
	if x.read(&list, "", "application", "list", "--limit", "2"); len(list) != 2 || list[0].ID != bare.ID {
		t.Errorf("application list --limit 2 = %d, %+v", len(list), list[0])
	}

	var changed, again api.Application
	x.read(&changed, "", "application", "update", made.ID, "--permission", "token:use")
	if changed.Name != "checkout" || fmt.Sprint(changed.Permissions) != "[token:use]" || len(changed.Rules) != 1 || changed.ExpiresAt.IsZero() {
		t.Errorf("application update --permission = %+v", changed)
	}
	x.read(&again, "", "application", "update", made.ID, "--name", "till", "--rules", mustWrite(t, rules, `[]`), "--expires-at", "")
	if again.Name != "till" || len(again.Permissions) != 1 || len(again.Rules) != 0 || !again.ExpiresAt.IsZero() {
		t.Errorf("application update --name --rules --expires-at = %+v", again)
	}

	var page, moved api.Application
	x.read(&page, "", "application", "create", "page", "--type", "public", "--permission", "token:create", "--allowed-origin", "https://shop.example", "--allowed-origin", "http://localhost:3000")
	wantLine(t, x.done("", "application", "get", page.ID), `origins +https://shop.example http://localhost:3000`)
	x.read(&moved, "", "application", "update", page.ID, "--name", "page 2")
	if fmt.Sprint(page.AllowedOrigins, moved.AllowedOrigins) != "[https://shop.example http://localhost:3000] [https://shop.example http://localhost:3000]" {
		t.Errorf("application create --allowed-origin and update --name = %v, %v", page.AllowedOrigins, moved.AllowedOrigins)
	}
	x.read(&moved, "", "application", "update", page.ID, "--allowed-origin", "https://pay.example")
	if fmt.Sprint(moved.AllowedOrigins) != "[https://pay.example]" || moved.Name != "page 2" {
		t.Errorf("application update --allowed-origin = %+v", moved)
	}
	moved = api.Application{}
	if x.read(&moved, "", "application", "update", page.ID, "--allowed-origin", ""); len(moved.AllowedOrigins) != 0 {
		t.Errorf("application update --allowed-origin '' = %+v", moved)
	}

	var more api.Key
	x.read(&more, "", "application", "rotate-key", made.ID, "--keep-old")
	var keys []api.Key
	if x.read(&keys, "", "application", "keys", made.ID); len(keys) != 2 || keys[1].ID != more.ID {
		t.Errorf("application keys = %+v", keys)
	}
	wantLine(t, x.done("", "application", "keys", made.ID, more.ID), more.ID+` +2 +key_test_pvt_\S+… +\S+ \S+`)
	wantLine(t, x.done("", "application", "keys", made.ID, more.ID, "--tenant", x.keys.TenantID, "--data", x.data), more.ID+` +2 .*`)
	x.done("", "application", "revoke-key", made.ID, keys[0].ID)
	if k.Call(t, "GET", "/applications/key", key, "").Status != 401 || k.Call(t, "GET", "/applications/key", more.Key, "").Status != 200 {
		t.Error("application revoke-key revoked another key, or none")
	}
	fresh := anyKey.FindString(x.done("", "application", "rotate-key", made.ID))
	if k.Call(t, "GET", "/applications/key", more.Key, "").Status != 401 || k.Call(t, "GET", "/applications/key", fresh, "").Status != 200 {
		t.Error("application rotate-key left the old key, or gave no new one")
	}
	x.refused(map[string]refusedCase{
		"rules of nonsense":   {[]string{"application", "update", made.ID, "--rules", mustWrite(t, rules, planted)}, "", 2, errRules.Error()},
		"no instant":          {[]string{"application", "create", "x", "--expires-at", planted}, "", 2, errInstant.Error()},
		"nothing that it may": {[]string{"application", "create", "x"}, "", 11, "permissions or rules are required"},
		"no origin":           {[]string{"application", "update", page.ID, "--allowed-origin", "https://" + planted + "/"}, "", 11, "allowed_origins.0 " + origin.Must},
		"no such key":         {[]string{"application", "keys", made.ID, "none"}, "", 11, "no such key"},
		"no such key here":    {[]string{"application", "keys", made.ID, planted, "--tenant", x.keys.TenantID, "--data", x.data}, "", 1, "no such key"},
	})
	if out := x.done("", "application", "delete", made.ID); !strings.HasPrefix(out, "The application is deleted") {
		t.Errorf("application delete printed %s", out)
	}
	x.refused(map[string]refusedCase{"gone": {[]string{"application", "get", made.ID}, "", 11, "no such application"}})

	out = x.done("", "permission", "list", "--type", "public")
	wantLine(t, out, `token:create +public private .*`)
	if strings.Contains(out, "log:read") {
		t.Errorf("permission list --type public printed\n%s", out)
	}
	var permissions []api.Permission
	if x.read(&permissions, "", "permission", "list"); len(permissions) < 20 {
		t.Errorf("permission list --json has %d", len(permissions))
	}
}

func TestSessionsOverTheAPI(t *testing.T) {
	x, _ := besideServer(t, nil)
	x.as(x.keys.PublicKey)
	var made api.CreatedSession
	created := x.done("", "session", "create", "--json")
	if err := json.Unmarshal([]byte(created), &made); err != nil {
		t.Fatal(err)
	}
	x.as(x.keys.PrivateKey)
	if out := x.done(created, "session", "authorize", "--permission", "token:create"); out != "The session is authorized.\n" {
		t.Errorf("session authorize printed %s", out)
	}
	x.as(made.SessionKey)
	x.done("1", "token", "create", "--type", "token")
	x.as(x.keys.PublicKey)
	out := x.done("", "session", "create")
	wantLine(t, out, `session key +key_test_sess_\S+`)
	nonce := strings.Fields(out[strings.Index(out, "nonce"):])[1]
	x.as(x.keys.PrivateKey)
	in := api.Time{Time: time.Now().Add(time.Hour)}.UTC().Format(time.RFC3339)
	x.done(nonce+"\n", "session", "authorize", "--permission", "token:read", "--expires-at", in)
	x.refused(map[string]refusedCase{
		"no nonce":    {[]string{"session", "authorize", "--permission", "token:read"}, "{}", 2, errNonce.Error()},
		"used up":     {[]string{"session", "authorize", "--permission", "token:read"}, nonce, 11, "the nonce was used already"},
		"of another":  {[]string{"session", "authorize", "--permission", "token:read", "--application", planted}, nonce, 11, "the session was made by another application"},
		"an unknown":  {[]string{"session", "authorize", "--permission", "token:read"}, planted, 11, "no session waits for this nonce"},
		"not private": {[]string{"session", "create"}, "", 11, "the key must be of a public application"},
	})
	x.as(x.keys.ManagementKey)
	var list []api.Session
	if x.read(&list, "", "session", "list"); len(list) != 2 || len(list[0].Permissions) != 1 {
		t.Fatalf("session list = %+v", list)
	}
	wantLine(t, x.done("", "session", "list", "--limit", "1"), list[0].ID+` +key_test_sess_\S+… +\S+ +1 +0 +\S+ \S+`)
	x.done("", "session", "revoke", list[1].ID)
	x.as(made.SessionKey)
	x.refused(map[string]refusedCase{"revoked": {[]string{"token", "list"}, "", 11, "unknown API key"}})
}

func TestReactorsAreRunFromTheCommandLine(t *testing.T) {
	storetest.Long(t)
	x, _ := besideServer(t, map[string]string{"sandbox.level": "reduced", "sandbox.runtime": runtimetest.Find(t).Folder})
	dir := t.TempDir()
	code := mustWrite(t, filepath.Join(dir, "code.js"), `module.exports = async (req) => { if (!req.args) throw new Error('nothing given'); return { raw: { last4: req.args.card.slice(-4), to: req.configuration.TO } } }`)
	var made api.Reactor
	x.read(&made, "", "reactor", "deploy", code, "--name", "last four")
	x.read(&made, `{"configuration":{"TO":"there"},"name":"last 4"}`, "reactor", "update", made.ID)
	if made.Name != "last 4" || made.Configuration["TO"] != "there" {
		t.Errorf("reactor update = %+v", made)
	}
	wantLine(t, x.done(`{}`, "reactor", "update", made.ID), `configuration +TO`)

	x.as(x.keys.PrivateKey)
	x.done(planted, "token", "create", "--type", "card_number", "--text", "--id", "my-card")
	const args = `{"card":"{{ my-card }}"}`
	var got api.ReactorResponse
	if out := x.done(args, "reactor", "react", made.ID, "--args", "-"); json.Unmarshal([]byte(out), &got) != nil || compact(t, got.Raw) != `{"last4":"4242","to":"there"}` || strings.Contains(out, planted) {
		t.Errorf("reactor react printed %s", out)
	}
	file := mustWrite(t, filepath.Join(dir, "args.json"), args)
	request := strings.TrimSpace(x.done("", "reactor", "react", made.ID, "--args", file, "--async", "--timeout", "210s"))
	x.read(&got, "", "reactor", "result", made.ID, request, "--wait", "1h")
	if compact(t, got.Raw) != `{"last4":"4242","to":"there"}` {
		t.Errorf("reactor result = %s", got.Raw)
	}
	x.refused(map[string]refusedCase{
		"code that throws":   {[]string{"reactor", "react", made.ID}, "", 11, "nothing given"},
		"no JSON":            {[]string{"reactor", "react", made.ID, "--args", "-"}, planted + "}", 2, "the input is not valid JSON"},
		"no such token":      {[]string{"reactor", "react", made.ID, "--args", "-"}, `{"card":"{{ none-here }}"}`, 11, "Failed to detokenize some tokens: none-here"},
		"a timeout too much": {[]string{"reactor", "react", made.ID, "--timeout", "20s"}, "", 11, "timeout_ms is for asynchronous requests: give a callback_url too"},
		"no such result":     {[]string{"reactor", "result", made.ID, made.ID}, "", 11, "no such result, or not yet"},
	})
}

func TestProxiesAreChangedAndCalledFromTheCommandLine(t *testing.T) {
	x, _ := besideServer(t, nil)
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, "%s %s %s %s %s", r.Method, r.URL, r.Header.Get("Content-Type"), r.Header.Get("X-Secret"), body)
	}))
	defer to.Close()
	var made, changed api.Proxy
	x.read(&made, "", "proxy", "create", "--name", "p", "--destination", "https://psp.example")
	x.read(&changed, `{"destination_url":"`+to.URL+`/v1"}`, "proxy", "update", made.ID)
	if changed.DestinationURL != to.URL+"/v1" || changed.Name != "p" || changed.Key != made.Key {
		t.Errorf("proxy update = %+v", changed)
	}
	x.read(&changed, "", "proxy", "replace", made.ID, "--name", "q", "--destination", to.URL+"/v2")
	if changed.DestinationURL != to.URL+"/v2" || changed.Name != "q" || changed.Key != made.Key {
		t.Errorf("proxy replace = %+v", changed)
	}

	x.as(x.keys.PrivateKey)
	x.done(planted, "token", "create", "--type", "card_number", "--text", "--id", "my-card")
	dir := t.TempDir()
	key := mustWrite(t, filepath.Join(dir, "key"), made.Key+"\n")
	headers := mustWrite(t, filepath.Join(dir, "headers"), "X-Secret: s\r\n\nX-Other: o\n")
	got := given(t, `{"n":"{{ my-card }}"}`, "proxy", "call", "--proxy-key-file", key, "--path", "/charges", "--query", "a=b", "--body-file", "-", "--header-file", headers)
	if want := `POST /v2/charges?a=b application/json s {"n":"` + planted + `"}`; got != (result{0, want, "… 202 from the destination\n"}) {
		t.Errorf("proxy call = %+v, want %s", got, want)
	}
	t.Setenv("TOKENKEEP_PROXY_KEY", made.Key)
	var answered proxied
	x.read(&answered, "number={{ my-card }}", "proxy", "call", "--method", "PUT", "--body-file", "-")
	if answered.Status != 202 || answered.DestinationStatus != 202 || answered.Body != "PUT /v2 text/plain; charset=utf-8  number="+planted {
		t.Errorf("proxy call --json = %+v", answered)
	}
	if got := given(t, "", "proxy", "call", "--destination", to.URL, "--header", "X-Secret: open"); got.code != 0 || got.out != "GET /  open " {
		t.Errorf("proxy call --destination = %+v", got)
	}
	x.refused(map[string]refusedCase{
		"no such token": {[]string{"proxy", "call", "--body-file", "-"}, `{"n":"{{ none-here }}"}`, 11, "Failed to detokenize some tokens: none-here"},
		"no header":     {[]string{"proxy", "call", "--header", planted}, "", 2, errHeader.Error()},
		"no path":       {[]string{"proxy", "call", "--path", planted}, "", 2, "the method, the path or the query of the call is not valid: not valid"},
	})
	x.as("")
	x.refused(map[string]refusedCase{"nobody": {[]string{"proxy", "call"}, "", 11, "The SVC-API-KEY header is required"}})
	t.Setenv("TOKENKEEP_PROXY_KEY", "")
	x.refused(map[string]refusedCase{"no proxy": {[]string{"proxy", "call"}, "", 2, errProxyKeyFile.Error()}})
}

func TestHealthFromTheCommandLine(t *testing.T) {
	x, k := besideServer(t, nil)
	x.as("")
	if out := x.done("", "health"); out != "The server is ready.\n" {
		t.Errorf("health printed %s", out)
	}
	var h api.Health
	if x.read(&h, "", "health"); h.Status != "ready" {
		t.Errorf("health --json = %+v", h)
	}
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	x.refused(map[string]refusedCase{"gone": {[]string{"health"}, "", 12, "nothing listens at the address of the server"}})
}
