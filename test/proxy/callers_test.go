package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestWhoMayCallAProxy(t *testing.T) {
	w := start(t, nil, nil)
	id := w.token(t, card)
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false}`)
	app := func(kind string, permissions ...string) string {
		return w.Application(t, w.tenant, api.CreateApplication{Type: kind, Permissions: permissions}).Key
	}
	reader := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:read"}})
	holder := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/pci/", Transform: "reveal", Permissions: []string{"token:use"}},
	}})
	powerless := w.define(t, `{"name":"p","destination_url":"`+w.to.URL+`","require_auth":false,"application":{"id":"`+reader.ID+`"}}`)
	limited := w.define(t, `{"name":"p","destination_url":"`+w.to.URL+`","require_auth":false,"application":{"id":"`+holder.ID+`","x":1}}`)
	if limited.ApplicationID != holder.ID || limited.RequireAuth {
		t.Errorf("a proxy came back with the application %q, auth %t", limited.ApplicationID, limited.RequireAuth)
	}
	var pci struct{ ID string }
	w.Call(t, "POST", "/tokens", w.private, `{"type":"card_number","data":"`+card+`"}`).Into(t, 201, &pci)
	masked := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "mask", Permissions: []string{"token:use"}},
	}}).Key
	redacted := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Transform: "redact", Permissions: []string{"token:use"}},
	}}).Key
	stranger := w.Application(t, w.Tenant(t).Tenant.ID, apiPrivate()).Key
	wrong := w.proxy.Key[:len(w.proxy.Key)-1] + map[bool]string{true: "2", false: "1"}[strings.HasSuffix(w.proxy.Key, "1")]
	expression := "{{" + id + "}}"
	for name, c := range map[string]struct {
		key, proxy, path, body string
		status                 int // 0 when the destination answers
		detail                 string
		want                   string // what the destination got
	}{
		"by header":                                {w.private, w.proxy.Key, "", expression, 0, "", card},
		"by query":                                 {w.private, "", "?svc-proxy-key=" + w.proxy.Key, expression, 0, "", card},
		"by both, the same":                        {w.private, w.proxy.Key, "?svc-proxy-key=" + w.proxy.Key, expression, 0, "", card},
		"by both, not the same":                    {w.private, w.proxy.Key, "?svc-proxy-key=" + open.Key, expression, 400, "more than one", ""},
		"nothing to detokenize, and allowed":       {w.private, w.proxy.Key, "", "x", 0, "", "x"},
		"nothing to detokenize, and not allowed":   {app("private", "token:read"), w.proxy.Key, "", "x", 403, "token:use", ""},
		"a management key":                         {w.management, w.proxy.Key, "", "x", 403, "token:use", ""},
		"a public key":                             {app("public", "token:create"), w.proxy.Key, "", "x", 403, "token:use", ""},
		"masked":                                   {masked, w.proxy.Key, "", "{{" + pci.ID + "}}", 0, "", "XXXXXXXXXXXX4242"},
		"redacted":                                 {redacted, w.proxy.Key, "", "{{" + pci.ID + "}}", 403, "", ""},
		"no API key":                               {"", w.proxy.Key, "", "x", 401, "The SVC-API-KEY header is required", ""},
		"an unknown API key":                       {"garbage", w.proxy.Key, "", "x", 401, "unknown", ""},
		"another tenant's key":                     {stranger, w.proxy.Key, "", "x", 404, "no such proxy", ""},
		"an unknown proxy key":                     {w.private, wrong, "", "x", 404, "no such proxy", ""},
		"no proxy key at all":                      {w.private, "", "", "x", 400, "required", ""},
		"an API key as proxy key":                  {w.private, w.private, "", "x", 404, "no such proxy", ""},
		"a name of the query in capitals":          {w.private, "", "?SVC-PROXY-KEY=" + w.proxy.Key, "x", 400, "required", ""},
		"anonymous":                                {"", open.Key, "", expression, 0, "", card},
		"anonymous, with a key that is ignored":    {"garbage", open.Key, "", expression, 0, "", card},
		"anonymous, with an application that may":  {"", limited.Key, "", "{{" + pci.ID + "}}", 0, "", card},
		"anonymous, another container":             {"", limited.Key, "", expression, 403, "token:use", ""},
		"anonymous, with an application that not":  {"", powerless.Key, "", expression, 403, "token:use", ""},
		"anonymous, that application, and nothing": {"", powerless.Key, "", "x", 0, "", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			headers := []string{"Content-Type", "text/plain"}
			if c.proxy != "" {
				headers = append(headers, "SVC-PROXY-KEY", c.proxy)
			}
			got := w.Call(t, "POST", "/proxy"+c.path, c.key, c.body, headers...)
			seen := w.to.take()
			if c.status != 0 {
				proxyError(t, got, c.status, c.detail)
				if len(seen) != 0 {
					t.Errorf("the destination got %q", seen[0].raw)
				}
				return
			}
			if got.Status != 200 || len(seen) != 1 || seen[0].body != c.want {
				t.Fatalf("the answer is %s, and the destination got %d requests, want %q", got, len(seen), c.want)
			}
			if strings.Contains(seen[0].raw, "key_") || strings.Contains(strings.ToLower(seen[0].raw), "proxy-key") {
				t.Errorf("a key was forwarded: %q", seen[0].raw)
			}
		})
	}
}

// TestAnOpenProxyWrittenBackGivesOutNoMoreThanBefore: its application is what
// holds anonymous callers back, and must not get lost on the way.
func TestAnOpenProxyWrittenBackGivesOutNoMoreThanBefore(t *testing.T) {
	w := start(t, nil, nil)
	id := w.token(t, card)
	cards := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/pci/", Transform: "reveal", Permissions: []string{"token:use"}},
	}}).ID
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false,"application":{"id":"`+cards+`"}}`)
	refused := func(when string) {
		t.Helper()
		got := w.Call(t, "POST", "/proxy", "", `["{{`+id+`}}"]`, "SVC-PROXY-KEY", open.Key)
		if seen := w.to.take(); got.Status != 403 || len(seen) != 0 {
			t.Errorf("%s, an anonymous call = %s and sent %d requests, want 403 and none", when, got, len(seen))
		}
	}
	refused("at first")
	path := "/proxies/" + open.ID
	read := w.Call(t, "GET", path, w.management, "").Body
	if got := w.Call(t, "PUT", path, w.management, read); got.Status != 200 || !strings.Contains(got.Body, cards) {
		t.Errorf("PUT of what was read = %s, want 200 with the application", got)
	}
	refused("after it was written back")
	for method, body := range map[string]string{
		"PUT":   `{"name":"open","destination_url":"` + w.to.URL + `","require_auth":false}`,
		"PATCH": `{"application_id":null}`,
	} {
		if got := w.Call(t, method, path, w.management, body); got.Status != 400 || !strings.Contains(got.Body, `"code":"application_required"`) {
			t.Errorf("%s %s = %s, want 400 application_required", method, body, got)
		}
		refused("after a " + method + " that was refused")
	}
	// Written out, it is what the tenant wants.
	if got := w.Call(t, "PATCH", path, w.management, `{"application":null}`); got.Status != 204 {
		t.Errorf("PATCH of null = %s, want 204", got)
	}
	if got := w.Call(t, "POST", "/proxy", "", `["{{`+id+`}}"]`, "SVC-PROXY-KEY", open.Key); got.Status != 200 || w.one(t).body != `["`+card+`"]` {
		t.Errorf("an anonymous call without an application = %s, want 200 and the value", got)
	}
}

func TestASessionCallsAProxy(t *testing.T) {
	w := start(t, nil, nil)
	id := w.token(t, card)
	public := w.Application(t, w.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	var s api.CreatedSession
	w.Call(t, "POST", "/sessions", public, "").Into(t, 201, &s)
	proxyError(t, w.Call(t, "POST", "/proxy", s.SessionKey, "{{"+id+"}}", "SVC-PROXY-KEY", w.proxy.Key, "Content-Type", "text/plain"), 403, "")
	if got := w.Call(t, "POST", "/sessions/authorize", w.private, `{"nonce":"`+s.Nonce+`","permissions":["token:use"]}`); got.Status != 200 {
		t.Fatalf("authorize = %s", got)
	}
	if got := w.Call(t, "POST", "/proxy", s.SessionKey, "{{"+id+"}}", "SVC-PROXY-KEY", w.proxy.Key, "Content-Type", "text/plain"); got.Status != 200 {
		t.Errorf("the answer is %s", got)
	}
	if r := w.one(t); r.body != card {
		t.Errorf("the destination got %q", r.body)
	}
}

func TestACallMayBringItsDestination(t *testing.T) {
	storetest.Long(t)
	w := start(t, nil, nil)
	id := w.token(t, card)
	call := func(key string, headers ...string) (int, []received) {
		got := w.Call(t, "POST", "/proxy/x?y", key, "{{"+id+"}}", append(headers, "Content-Type", "text/plain")...)
		return got.Status, w.to.take()
	}
	status, seen := call(w.private, "SVC-PROXY-URL", w.to.URL+"/own/?z=1")
	if status != 200 || len(seen) != 1 || seen[0].target != "/own/x?z=1&y" || seen[0].body != card || seen[0].header.Get("SVC-PROXY-URL") != "" {
		t.Errorf("the answer is %d, and the destination got %v", status, seen)
	}
	if status, seen := call(w.private, "SVC-PROXY-URL", "http://127.0.0.1:1", "SVC-PROXY-KEY", w.proxy.Key); status != 200 || len(seen) != 1 || seen[0].target != "/base/x?y" {
		t.Errorf("beside a proxy key the answer is %d, and the destination got %v", status, seen)
	}
	public := w.Application(t, w.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	useless := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:read"}}).Key
	for _, key := range []string{w.management, public, useless} {
		if status, seen := call(key, "SVC-PROXY-URL", w.to.URL); status != 403 || len(seen) != 0 {
			t.Errorf("the answer is %d, and the destination got %d requests, want 403 and none", status, len(seen))
		}
	}
	for _, url := range []string{"https://10.0.0.1/", "ftp://example.com/", "http://example.com:22/", "https://user@example.com/", "nonsense", "https://169.254.169.254/"} {
		proxyError(t, w.Call(t, "GET", "/proxy", w.private, "", "SVC-PROXY-URL", url), 400, "destination")
	}
	proxyError(t, w.Call(t, "GET", "/proxy", "", "", "SVC-PROXY-URL", w.to.URL), 401, "The SVC-API-KEY header is required")
	if got := w.Call(t, "PUT", "/tenants/self", w.management, `{"name":"x","settings":{"disable_ephemeral_proxy":"true","disable_anonymous_detokenization":"true"}}`); got.Status != 200 {
		t.Fatalf("PUT /tenants/self = %s", got)
	}
	proxyError(t, w.Call(t, "GET", "/proxy", w.private, "", "SVC-PROXY-URL", w.to.URL), 403, "does not allow")
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false}`)
	proxyError(t, w.Call(t, "POST", "/proxy", "", `["{{`+id+`}}"]`, "SVC-PROXY-KEY", open.Key), 403, "does not allow")
	if got := w.Call(t, "POST", "/proxy", "", `[1]`, "SVC-PROXY-KEY", open.Key); got.Status != 200 {
		t.Errorf("an anonymous call with nothing to detokenize = %s", got)
	}
}

func TestEveryUseIsInTheLogAndNoValueIs(t *testing.T) {
	w := start(t, nil, nil)
	id := w.token(t, card)
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false}`)
	secretPath := "/secret-path-" + card + "?q=secret-query"
	w.send(t, "POST", secretPath, "text/plain", "{{"+id+"}}{{"+id+"}}", "X-Secret", "secret-header")
	w.Call(t, "POST", "/proxy", "", "{{"+id+"}}", "SVC-PROXY-KEY", open.Key, "Content-Type", "text/plain")
	w.Call(t, "POST", "/proxy", w.private, "{{"+id+"}}", "SVC-PROXY-URL", w.to.URL, "Content-Type", "text/plain")
	w.Call(t, "POST", "/proxy", w.management, "{{"+id+"}}", "SVC-PROXY-KEY", w.proxy.Key, "Content-Type", "text/plain")
	elsewhere := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{{Container: "/elsewhere/", Transform: "reveal", Permissions: []string{"token:use"}}}})
	w.Call(t, "POST", "/proxy", elsewhere.Key, "{{"+id+"}}", "SVC-PROXY-KEY", w.proxy.Key, "Content-Type", "text/plain")
	limited := w.define(t, `{"name":"limited","destination_url":"`+w.to.URL+`","require_auth":false,"application":{"id":"`+elsewhere.ID+`"}}`)
	w.Call(t, "POST", "/proxy", "", "{{"+id+"}}", "SVC-PROXY-KEY", limited.Key, "Content-Type", "text/plain")
	if got := w.Call(t, "PUT", "/tenants/self", w.management, `{"name":"x","settings":{"disable_ephemeral_proxy":"true","disable_anonymous_detokenization":"true"}}`); got.Status != 200 {
		t.Fatalf("PUT /tenants/self = %s", got)
	}
	w.Call(t, "POST", "/proxy", w.private, "{{"+id+"}}", "SVC-PROXY-URL", w.to.URL, "Content-Type", "text/plain")
	w.Call(t, "POST", "/proxy", "", "{{"+id+"}}", "SVC-PROXY-KEY", open.Key, "Content-Type", "text/plain")
	var list api.List[api.LogEntry]
	w.Call(t, "GET", "/logs?size=100", w.management, "").Into(t, 200, &list)
	count := make(map[string]int)
	for _, e := range list.Data {
		if e.Operation == "use" {
			name := e.Message + " " + e.EntityType + " " + strings.NewReplacer(id, "<id>", w.proxy.ID, "<proxy>", open.ID, "<open>").Replace(e.EntityID)
			if e.ActorType == "" {
				name += " anonymous"
			}
			count[name]++
		}
	}
	for name, want := range map[string]int{
		"Proxy used proxy <proxy>": 1, "Proxy used proxy <open> anonymous": 1, "Proxy used proxy ephemeral": 1,
		"Token used by proxy token <id>": 2, "Token used by proxy token <id> anonymous": 1, "Proxy use denied proxy <proxy>": 1, "Token use denied token <id>": 1,
		"Token use denied token <id> anonymous": 1, "Proxy use denied proxy ephemeral": 1, "Proxy use denied proxy <open> anonymous": 1,
	} {
		if count[name] != want {
			t.Errorf("the log has %q %d times, want %d: %v", name, count[name], want, count)
		}
	}
	for _, s := range []string{"secret-path", "secret-query", "secret-header", card, w.proxy.Key, open.Key, w.private, w.to.URL} {
		if strings.Contains(w.Log.String(), s) {
			t.Errorf("the server's log holds %q", s)
		}
	}
}

func TestAProxyIsManaged(t *testing.T) {
	w := start(t, nil, nil)
	const full = `{"name":"Kasse","destination_url":"https://psp.example.com/v1/","require_auth":false,"configuration":{"k":"v"},
		"request_transform":{"code":"module.exports = async (r) => r.args"},"response_transform":{}}`
	p := w.define(t, full)
	if p.Key == "" || p.RequireAuth || p.RequestTransform == nil || p.ResponseTransform != nil || p.Configuration["k"] != "v" || p.DestinationURL != "https://psp.example.com/v1/" {
		t.Errorf("POST /proxies = %+v", p)
	}
	var got api.Proxy
	w.Call(t, "GET", "/proxies/"+p.ID, w.management, "").Into(t, 200, &got)
	if got.Key != p.Key || got.RequestTransform.Code != p.RequestTransform.Code {
		t.Error("GET /proxies/{id} is not what was made")
	}
	for _, c := range []struct {
		patch string
		check func(api.Proxy) bool
	}{
		{`{"name":"New"}`, func(p api.Proxy) bool { return p.Name == "New" && p.Configuration["k"] == "v" }},
		{`{"configuration":{"k":null,"l":"m"}}`, func(p api.Proxy) bool { return len(p.Configuration) == 1 && p.Configuration["l"] == "m" }},
		{`{"request_transform":{}}`, func(p api.Proxy) bool { return p.RequestTransform == nil }},
		{`{"require_auth":null}`, func(p api.Proxy) bool { return p.RequireAuth }},
		{`{"destination_url":"https://a.example.org"}`, func(p api.Proxy) bool { return p.DestinationURL == "https://a.example.org" && p.Name == "New" }},
	} {
		if a := w.Call(t, "PATCH", "/proxies/"+p.ID, w.management, c.patch); a.Status != 204 || a.Body != "" {
			t.Errorf("PATCH %s = %s, want 204", c.patch, a)
		}
		var got api.Proxy
		w.Call(t, "GET", "/proxies/"+p.ID, w.management, "").Into(t, 200, &got)
		if !c.check(got) || got.Key != p.Key {
			t.Errorf("after PATCH %s it is %+v", c.patch, got)
		}
	}
	got = api.Proxy{}
	w.Call(t, "PUT", "/proxies/"+p.ID, w.management, `{"name":"n","destination_url":"https://a.example.org","key":"mine"}`).Into(t, 200, &got)
	if got.Key != p.Key || !got.RequireAuth || got.Configuration != nil || got.ModifiedBy == "" {
		t.Errorf("PUT /proxies/{id} = %+v, want the defaults and the old key", got)
	}
	if a := w.Call(t, "PATCH", "/proxies/"+p.ID, w.management, `{}`, "Content-Type", "application/json"); a.Status != http.StatusUnsupportedMediaType {
		t.Errorf("PATCH as JSON = %s, want 415", a)
	}
	for body, path := range map[string]string{
		`{"destination_url":"https://a.example.org"}`: "name",
		`{"name":"n"}`: "destination_url",
		`{"name":"n","destination_url":"https://10.0.0.1"}`:                                                                  "destination_url",
		`{"name":"n","destination_url":1}`:                                                                                   "destination_url",
		`{"name":"n","destination_url":"https://a.example.org","require_auth":"x"}`:                                          "require_auth",
		`{"name":"n","destination_url":"https://a.example.org","configuration":{"a":1}}`:                                     "configuration",
		`{"name":"n","destination_url":"https://a.example.org","request_transform":1}`:                                       "request_transform",
		`{"name":"n","destination_url":"https://a.example.org","application":{"id":"00000000-0000-4000-8000-000000000000"}}`: "application.id",
	} {
		a := w.Call(t, "POST", "/proxies", w.management, body)
		var problem api.Problem
		a.Into(t, 400, &problem)
		if len(problem.Errors[path]) == 0 {
			t.Errorf("POST /proxies %s = %s, want errors under %s", body, a, path)
		}
	}
	var list api.List[api.Proxy]
	w.Call(t, "GET", "/proxies?name=*&id="+p.ID, w.management, "").Into(t, 200, &list)
	if list.Pagination.TotalItems != 1 || list.Data[0].ID != p.ID {
		t.Errorf("GET /proxies = %+v", list)
	}
	if a := w.Call(t, "DELETE", "/proxies/"+p.ID, w.management, ""); a.Status != 204 {
		t.Errorf("DELETE = %s", a)
	}
	proxyError(t, w.Call(t, "GET", "/proxy", w.private, "", "SVC-PROXY-KEY", p.Key), 404, "no such proxy")
}

func TestARotatedKeyIsDeadAtOnce(t *testing.T) {
	w := start(t, nil, nil)
	var got api.Proxy
	w.Call(t, "POST", "/proxies/"+w.proxy.ID+"/rotate-key", w.management, "").Into(t, 200, &got)
	if got.Key == w.proxy.Key || got.ID != w.proxy.ID || got.DestinationURL != w.proxy.DestinationURL {
		t.Errorf("rotate-key = %+v", got)
	}
	proxyError(t, w.send(t, "GET", "/", "", ""), 404, "no such proxy")
	w.proxy = got
	if a := w.send(t, "GET", "/", "", ""); a.Status != 200 {
		t.Errorf("with the new key the answer is %s", a)
	}
	reader := w.Application(t, w.tenant, api.CreateApplication{Type: "management", Permissions: []string{"proxy:read"}}).Key
	if a := w.Call(t, "POST", "/proxies/"+w.proxy.ID+"/rotate-key", reader, ""); a.Status != 403 {
		t.Errorf("rotate-key with proxy:read = %s, want 403", a)
	}
}

// TestBrowsersAskUsAndNotTheDestination: a preflight has no key, and its answer
// is ours to give.
func TestBrowsersAskUsAndNotTheDestination(t *testing.T) {
	w := start(t, nil, nil)
	got := w.Call(t, "OPTIONS", "/proxy/x", "", "", "Origin", "https://shop.example", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "svc-proxy-key")
	if got.Status != 204 || got.Header.Get("Access-Control-Allow-Origin") != "*" || got.Header.Get("Access-Control-Allow-Headers") == "" {
		t.Errorf("the answer to a preflight is %s %v", got, got.Header)
	}
	if seen := w.to.take(); len(seen) != 0 {
		t.Errorf("the destination got %q", seen[0].raw)
	}
}

func TestAnotherPrefixNamesEveryHeader(t *testing.T) {
	storetest.Long(t)
	w := start(t, map[string]string{"header_prefix": "bt"}, nil)
	id := func() string {
		var made struct{ ID string }
		w.Call(t, "POST", "/tokens", "", `{"type":"token","data":"`+card+`"}`, "BT-API-KEY", w.private).Into(t, 201, &made)
		return made.ID
	}()
	got := w.Call(t, "POST", "/proxy/x?bt-proxy-key="+w.proxy.Key+"&svc-proxy-key=y", "", `["{{`+id+`}}"]`, "BT-API-KEY", w.private, "BT-X", "1", "BT_Y", "2", "SVC-Z", "3")
	if got.Status != 200 || got.Header.Get("BT-PROXY-DESTINATION-STATUS") != "200" {
		t.Fatalf("the answer is %s %v", got, got.Header)
	}
	r := w.one(t)
	if r.target != "/base/x?svc-proxy-key=y" || r.body != `["`+card+`"]` || r.header.Get("SVC-Z") != "3" || r.header.Get("BT-TRACE-ID") == "" {
		t.Errorf("the destination got %q", r.raw)
	}
	for _, name := range []string{"Bt-Api-Key", "Bt-X", "Bt_y", "Bt-Proxy-Key"} {
		if r.header.Get(name) != "" {
			t.Errorf("the destination got %s", name)
		}
	}
	if got := w.Call(t, "POST", "/proxy", "", `[]`, "BT-PROXY-KEY", w.proxy.Key); !strings.Contains(got.Body, "The BT-API-KEY header is required") {
		t.Errorf("the answer is %s", got)
	}
}
