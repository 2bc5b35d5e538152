package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
)

func TestProxiesFromTheCommandLine(t *testing.T) {
	x := openTill(t)
	t.Setenv("TOKENKEEP_API_KEY", x.keys.ManagementKey)
	dir := t.TempDir()
	code := mustWrite(t, filepath.Join(dir, "code.js"), "module.exports = async (req) => req.args\n")
	config := mustWrite(t, filepath.Join(dir, "config.json"), `{"KEY":"a secret"}`)
	application := applicationOfType(t, given(t, "", "application", "list", "--data", x.data, "--json", "--tenant", x.keys.TenantID), "private")

	out := x.done("", "proxy", "create", "--name", "payments", "--destination", "https://psp.example.com/v1", "--open", "--application", application,
		"--request-transform", code, "--response-transform", code, "--config", config)
	for _, line := range []string{
		`name +payments`, `destination +https://psp\.example\.com/v1`, `callers +anybody with the proxy's key`, `application +` + application,
		`request transform +1 lines`, `response transform +1 lines`, `configuration +KEY`, `key +key_.*_proxy_.*`,
	} {
		wantLine(t, out, line)
	}
	if strings.Contains(out, "a secret") {
		t.Errorf("proxy create printed a value of the configuration:\n%s", out)
	}
	x.done("", "proxy", "create", "--name", "other", "--destination", "https://psp.example.com")
	var list []api.Proxy
	x.read(&list, "", "proxy", "list", "--name", "pay*")
	if len(list) != 1 || list[0].Name != "payments" || list[0].RequireAuth || list[0].RequestTransform == nil || list[0].Configuration["KEY"] != "a secret" {
		t.Fatalf("proxy list = %+v", list)
	}
	made := list[0]
	out = x.done("", "proxy", "list")
	wantLine(t, out, made.ID+` +payments +https://psp\.example\.com/v1 +ignored +`+application)
	wantLine(t, out, `[^ ]+ +other +https://psp\.example\.com +asked for *`)
	if out := x.done("", "proxy", "get", made.ID); strings.Contains(out, made.Key) || strings.Contains(out, "a secret") || !strings.Contains(out, made.ID) {
		t.Errorf("proxy get printed\n%s", out)
	}
	if out := x.done("", "proxy", "get", made.ID, "--key"); out != made.Key+"\n" {
		t.Errorf("proxy get --key printed %q", out)
	}
	var shaping api.Reactor
	x.read(&shaping, "", "reactor", "deploy", code, "--name", "shape")
	out = x.done("", "proxy", "create", "--name", "shaped", "--destination", "https://psp.example.com", "--request-reactor", shaping.ID, "--response-reactor", shaping.ID)
	wantLine(t, out, `request reactor +`+shaping.ID)
	wantLine(t, out, `response reactor +`+shaping.ID)
	if got := given(t, "", "reactor", "delete", shaping.ID); got.code != 11 || !strings.Contains(got.err, "the reactor is in use; proxies that name it: 1") {
		t.Errorf("reactor delete of one that a proxy names = %+v", got)
	}
	var rotated api.Proxy
	x.read(&rotated, "", "proxy", "rotate-key", made.ID)
	if rotated.ID != made.ID || rotated.Key == made.Key || rotated.Key == "" {
		t.Errorf("proxy rotate-key = %+v", rotated)
	}
	for _, test := range []struct {
		name, in string
		args     []string
		want     string // the application afterwards
		exit     int
		err      string
	}{
		{"left out", "", []string{"replace", made.ID, "--name", "payments", "--destination", "https://psp.example.com", "--open"}, application, 11, "require_auth false"},
		{"a patch of the id", `{"application_id":null}`, []string{"update", made.ID}, application, 11, "require_auth false"},
		{"something else", `{"name":"payments"}`, []string{"update", made.ID}, application, 0, ""},
		{"kept", "", []string{"replace", made.ID, "--name", "payments", "--destination", "https://psp.example.com", "--open", "--application", application}, application, 0, ""},
		{"kept and removed", "", []string{"replace", made.ID, "--name", "x", "--destination", "https://x.example", "--application", application, "--no-application"}, application, 2, "no-application"},
		{"removed", "", []string{"replace", made.ID, "--name", "payments", "--destination", "https://psp.example.com", "--open", "--no-application"}, "", 0, ""},
		{"a patch to another", `{"application_id":"` + application + `"}`, []string{"update", made.ID}, application, 0, ""},
		{"a patch of null", `{"application":null}`, []string{"update", made.ID}, "", 0, ""},
	} {
		if got := given(t, test.in, append([]string{"proxy"}, test.args...)...); got.code != test.exit || !strings.Contains(got.err, test.err) {
			t.Errorf("%s: proxy %s = %+v, want %d and %q", test.name, test.args[0], got, test.exit, test.err)
		}
		var now api.Proxy
		if x.read(&now, "", "proxy", "get", made.ID); now.ApplicationID != test.want || now.RequireAuth {
			t.Errorf("%s: the application is then %q, want %q", test.name, now.ApplicationID, test.want)
		}
	}
	for name, test := range map[string]struct {
		args []string
		exit int
		err  string
	}{
		"no destination":    {[]string{"create", "--name", "x"}, 2, "destination"},
		"no such file":      {[]string{"create", "--name", "x", "--destination", "https://a.example", "--request-transform", filepath.Join(dir, "nope")}, 2, "the file with the request transform cannot be read"},
		"another file":      {[]string{"create", "--name", "x", "--destination", "https://a.example", "--config", code}, 2, "object of texts"},
		"a bad destination": {[]string{"create", "--name", "x", "--destination", "ftp://" + planted}, 11, "destination"},
		"no such proxy":     {[]string{"get", x.keys.TenantID}, 11, "no such proxy"},
		"nothing to try":    {[]string{"try", x.keys.TenantID}, 11, "no such proxy"},
		"no header":         {[]string{"try", made.ID, "--header", planted}, 2, "Name: value"},
		"a header twice":    {[]string{"try", made.ID, "--header", "a: b", "--header", "a: c"}, 2, "each name once"},
		"no body":           {[]string{"try", made.ID, "--body-file", filepath.Join(dir, planted)}, 2, "the file with the body cannot be read"},
		"not for anybody":   {[]string{"try", made.ID, "--as", application}, 11, "asks for no API key"},
	} {
		if got := given(t, "", append([]string{"proxy"}, test.args...)...); got.code != test.exit || !strings.Contains(got.err, test.err) || strings.Contains(got.err, planted) {
			t.Errorf("%s: proxy %s = %+v, want %d and %q", name, test.args[0], got, test.exit, test.err)
		}
	}
	if out := x.done("", "proxy", "delete", made.ID); out != "The proxy is deleted.\n" {
		t.Errorf("proxy delete printed %q", out)
	}
	if got := given(t, "", "proxy", "get", made.ID); got.code != 11 {
		t.Errorf("proxy get of what was deleted = %+v", got)
	}
}

func TestACallIsTriedWithoutSendingIt(t *testing.T) {
	x := openTill(t)
	x.done(cardJSON, "token", "create", "--type", "card", "--id", "my-card")
	t.Setenv("TOKENKEEP_API_KEY", x.keys.ManagementKey)
	var sent atomic.Int64
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent.Add(1) }))
	defer to.Close()
	application := applicationOfType(t, given(t, "", "application", "list", "--data", x.data, "--json", "--tenant", x.keys.TenantID), "private")
	code := mustWrite(t, filepath.Join(t.TempDir(), "code.js"), "module.exports = async (req) => req.args")
	var p, open api.Proxy
	x.read(&p, "", "proxy", "create", "--name", "p", "--destination", to.URL)
	x.read(&open, "", "proxy", "create", "--name", "open", "--destination", to.URL, "--open", "--request-transform", code)

	out := x.done(`{"card": "{{ my-card | json: '$.number' }}",`+"\n\t"+`"x": 1}`, "proxy", "try", p.ID, "--as", application, "--path", "/charges", "--query", "dry=1",
		"--header", "X-A: b:c", "--body-file", "-")
	for _, line := range []string{
		`POST ` + to.URL + `/charges\?dry=1`, `Content-Type: application/json`, `X-A: b:c`, `\{"card": "\[card\]",`, `    "x": 1\}`,
		`token my-card \(card in /pci/high/\): reveal, by .*; shown as a placeholder`, `Nothing was sent\.`,
	} {
		wantLine(t, out, line)
	}
	var got api.ProxyPreview
	x.read(&got, `["{{ my-card }}"]`, "proxy", "try", p.ID, "--as", application, "--method", "PUT", "--header", "content-type: text/plain", "--body-file", "-")
	if got.Method != "PUT" || got.Body != `["[card]"]` || !got.Allowed {
		t.Errorf("proxy try of a text = %+v", got)
	}
	out = x.done("", "proxy", "try", open.ID)
	wantLine(t, out, `GET `+to.URL+`/`)
	wantLine(t, out, `The request transform was not run\.`)
	rules := mustWrite(t, filepath.Join(t.TempDir(), "rules.json"), `[{"container":"/bank/","transform":"reveal","permissions":["token:use"]}]`)
	var none api.Application
	x.read(&none, "", "application", "create", "none", "--type", "private", "--rules", rules)
	refused := given(t, `["{{ my-card }}"]`, "proxy", "try", p.ID, "--as", none.ID, "--body-file", "-")
	if refused.code != 11 || !strings.Contains(refused.err, "the call would be refused") {
		t.Errorf("proxy try of a call that would be refused = %+v, want 11", refused)
	}
	wantLine(t, refused.out, `token my-card \(card in /pci/high/\): refused, by no rule and no plain permission; shown as a placeholder`)
	if strings.Contains(out, planted) || sent.Load() != 0 {
		t.Errorf("proxy try printed\n%s\nand sent %d requests", out, sent.Load())
	}
}
