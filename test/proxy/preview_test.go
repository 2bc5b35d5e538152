package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/test/canary"
)

// witness is a destination that counts connections, with or without a request.
func witness(t testing.TB) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, connections
}

// secrets are what no preview may show, in any form.
var secrets = []string{card, "a-secret-sentence-of-some-length", "Jane-Q-Secret-Holder"}

func TestAPreviewShowsTheRequestAndSendsNothing(t *testing.T) {
	w := start(t, nil, nil)
	to, connections := witness(t)
	p := w.define(t, `{"name":"p","destination_url":"`+to+`/base?k=1","request_transform":{"code":"module.exports = async () => { throw new Error('it ran') }"}}`)
	plain := w.define(t, `{"name":"plain","destination_url":"`+to+`/base?k=1"}`)
	app := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/", Priority: new(5), Transform: "reveal", Permissions: []string{"token:create", "token:use"}},
		{Container: "/pci/", Priority: new(1), Transform: "mask", Permissions: []string{"token:read"}},
	}})
	keep := func(body string) string {
		var made struct{ ID string }
		w.Call(t, "POST", "/tokens", w.private, body).Into(t, 201, &made)
		return made.ID
	}
	whole := keep(`{"type":"card","data":{"number":"` + card + `","expiration_month":12,"expiration_year":2031,"cvc":"987"},"metadata":{"holder":"Jane-Q-Secret-Holder"}}`)
	text := keep(`{"type":"token","data":"a-secret-sentence-of-some-length"}`)
	shown := keep(`{"type":"token","data":"a-secret-sentence-of-some-length","mask":"{{ data | slice: 2, 6 }}***"}`)
	scan, err := canary.New(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ body, want string }{
		"JSON":                    {`{"card":"{{ ` + whole + ` | json: '$.number' }}","n":1.50}`, `{"card":"[card]","n":1.50}`},
		"a default mask":          {`["{{ ` + text + ` }}"]`, `["[token]"]`},
		"a mask of its own":       {`["{{ ` + shown + ` }}"]`, `["[token]"]`},
		"a text around it":        {`["a {{ ` + text + ` }} b {{ ` + text + ` }}"]`, `["a [token] b [token]"]`},
		"a filter that cuts":      {`["{{ ` + text + ` | slice: 0, 8 }}"]`, `["[token]"]`},
		"a filter that measures":  {`["{{ ` + text + ` | replace: 'secret', '' | size }}"]`, `["[token]"]`},
		"a filter that defaults":  {`["{{ ` + text + ` | default: 'x' }}"]`, `["[token]"]`},
		"a filter that fails":     {`["{{ ` + text + ` | to_number }}"]`, `["[token]"]`},
		"a path that finds one":   {`["{{ ` + whole + ` | json: '$.number' }}"]`, `["[card]"]`},
		"a path that finds none":  {`["{{ ` + whole + ` | json: '$.nothing' }}"]`, `["[card]"]`},
		"a path that is none":     {`["{{ ` + whole + ` | json: '$$$' }}"]`, `["[card]"]`},
		"the issuer":              {`["{{ token: ` + whole + ` | json: '$.card.bin' }}"]`, `["[card]"]`},
		"metadata":                {`["{{ token: ` + whole + ` | json: '$.metadata.holder' }}"]`, `["[card]"]`},
		"the type":                {`["{{ token: ` + whole + ` | json: '$.type' }}"]`, `["[card]"]`},
		"the fingerprint":         {`["{{ token: ` + whole + ` | json: '$.fingerprint' }}"]`, `["[card]"]`},
		"the whole":               {`["{{ token: ` + whole + ` }}"]`, `["[card]"]`},
		"the name of a container": {`{"{{ ` + whole + ` }}":"{{ ` + whole + ` }}"}`, `{"{{ ` + whole + ` }}":"[card]"}`},
	} {
		for _, proxy := range []api.Proxy{p, plain} {
			in := `{"application_id":"` + app.ID + `","path":"/a%2fb","query":"?c=d&svc-proxy-key=x","headers":{"X-A":"b","SVC-API-KEY":"x","Connection":"close","user-agent":"me"},"body":` + c.body + `}`
			answer := w.Call(t, "POST", "/proxies/"+proxy.ID+"/preview", w.management, in)
			var got api.ProxyPreview
			answer.Into(t, 200, &got)
			if got.Body != c.want || got.Method != "POST" || got.URL != to+"/base/a%2fb?k=1&c=d" || got.Anonymous || !got.Allowed || got.ResponseTransform != "" {
				t.Errorf("%s: the preview is %s, want %s", name, answer, c.want)
			}
			if want := map[bool]string{true: "not run"}[proxy.ID == p.ID]; got.RequestTransform != want {
				t.Errorf("%s: of its transform the preview says %q, want %q", name, got.RequestTransform, want)
			}
			if h := got.Headers; len(h) != 4 || h["X-A"] != "b" || h["User-Agent"] != "me" || h["Content-Type"] != api.MediaJSON || h["SVC-TRACE-ID"]+h["Svc-Trace-Id"] == "" {
				t.Errorf("%s: the headers are %v", name, h)
			}
			if len(got.Tokens) != 1 || !got.Tokens[0].Allowed || got.Tokens[0].Transform != "reveal" || got.Tokens[0].Shown != "placeholder" ||
				*got.Tokens[0].DecidedBy.Rule != 0 || got.Tokens[0].DecidedBy.Priority != 5 || len(got.Tokens[0].Steps) == 0 {
				t.Errorf("%s: the tokens are %+v", name, got.Tokens)
			}
			if found := scan.Search([]byte(answer.Body)); len(found) > 0 {
				t.Errorf("%s: the preview shows %v", name, found)
			}
		}
	}
	if n := connections.Load(); n != 0 {
		t.Errorf("the previews made %d connections", n)
	}
	// And the same request by that application is sent, with the value.
	sent := w.Call(t, "POST", "/proxy", app.Key, `["{{ `+text+` }}"]`, "SVC-PROXY-KEY", plain.Key)
	if n := connections.Load(); n != 1 || sent.Body != `["a-secret-sentence-of-some-length"]` {
		t.Errorf("the call = %s over %d connections", sent, n)
	}
	for where, text := range map[string]string{
		"the server's log": w.Log.String(), "the metrics": w.Call(t, "GET", "/metrics", "", "").Body, "the tenant's log": w.Call(t, "GET", "/logs?size=100", w.management, "").Body,
	} {
		if found := scan.Search([]byte(text)); len(found) > 0 || text == "" {
			t.Errorf("%s shows %v", where, found)
		}
	}
}

// TestNoPreviewDependsOnTheDataOfATokenThatTheViewerMayNotRead previews every
// filter on tokens of the same type and of data as different as can be. Nothing
// in the answers differs: not a length, not a shape, not an error.
func TestNoPreviewDependsOnTheDataOfATokenThatTheViewerMayNotRead(t *testing.T) {
	w := start(t, nil, nil)
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false}`)
	long := `"` + strings.Repeat("long ", 10_000) + `"`
	var ids []string
	for i, made := range []string{
		`"data":"a"`, `"data":""`, `"data":` + long, `"data":12`, `"data":-0.5e3`, `"data":true`, `"data":[]`, `"data":{}`,
		`"data":["a",["b"],null]`, `"data":{"number":"` + card + `","a":{"b":null}}`, `"data":"2031-05-06"`, `"data":"--X\r\n\u0000"`,
		`"data":"a","mask":"{{ data }}","metadata":{"a":"b"},"search_indexes":["{{ data }}"],"expires_at":"2099-01-01T00:00:00Z"`, `"data":{"a":1},"mask":{"a":"{{ data.a }}"}`,
	} {
		id := fmt.Sprintf("token-%c", 'a'+i) // of one length
		if got := w.Call(t, "POST", "/tokens", w.private, `{"id":"`+id+`","type":"token",`+made+`}`); got.Status != 201 {
			t.Fatalf("POST /tokens = %s", got)
		}
		ids = append(ids, id)
	}
	heads := []string{"{{ THIS }}", "{{ token: THIS }}", "{{ THIS | json: '$' }}", "{{ THIS | json: '$..*' }}", "{{ token: THIS | json: '$.metadata' }}"}
	for _, f := range expression.Filters() {
		for _, e := range f.Examples {
			if _, filters, ok := strings.Cut(e.Expression, "|"); ok && !strings.Contains(filters, "data") && !strings.HasPrefix(f.Name, "alias_") {
				heads = append(heads, "{{ THIS |"+filters, "{{ token: THIS |"+filters)
			}
		}
	}
	if len(heads) < 100 {
		t.Fatalf("there are %d expressions: the test looks in the wrong place", len(heads))
	}
	var lines []string
	for i, head := range heads {
		lines = append(lines, fmt.Sprintf("%d %s", i, head))
	}
	for media, body := range map[string]string{
		"application/json":                  string(quoted(t, heads)),
		"text/plain":                        strings.Join(lines, "\n"),
		"application/xml":                   "<a>" + strings.Join(lines, "</a>\n<a>") + "</a>",
		"application/x-www-form-urlencoded": "a=" + strings.Join(each(heads, url.QueryEscape), "&a="),
		"multipart/form-data; boundary=X":   "--X\r\nContent-Disposition: form-data; name=a\r\n\r\n" + lines[0] + "\r\n--X--\r\n",
	} {
		first := ""
		for _, id := range ids {
			in := api.PreviewProxy{Headers: map[string]string{"Content-Type": media}, Body: quoted(t, strings.ReplaceAll(body, "THIS", id))}
			got := w.Call(t, "POST", "/proxies/"+open.ID+"/preview", w.management, string(quoted(t, in)), "SVC-TRACE-ID", "one")
			text := strings.ReplaceAll(got.String(), id, "THIS")
			if first == "" {
				first = text
			}
			if got.Status != 200 || text != first {
				t.Errorf("the preview of %s with %s is\n%.300s\nand with %s it is\n%.300s", media, id, text, ids[0], first)
			}
		}
	}
}

func each(list []string, change func(string) string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = change(s)
	}
	return out
}

// TestAPreviewSaysOfEachTokenWhetherTheCallMayUseIt also of those that it may
// not.
func TestAPreviewSaysOfEachTokenWhetherTheCallMayUseIt(t *testing.T) {
	w := start(t, nil, nil)
	const numeric = "4242-4242-4242-4242" // an id that looks like a card number, which a tenant may allow
	settings := w.Application(t, w.tenant, api.CreateApplication{Type: "management", Permissions: []string{"tenant:update"}}).Key
	if got := w.Call(t, "PUT", "/tenants/self", settings, `{"name":"t","settings":{"numeric_ids":"true"}}`); got.Status != 200 {
		t.Fatalf("PUT /tenants/self = %s", got)
	}
	for id, container := range map[string]string{"in-pci": "/pci/", "in-bank": "/bank/", "in-none": "/none/", numeric: "/pci/"} {
		body := `{"id":"` + id + `","type":"token","data":"` + card[:8] + `","containers":["` + container + `"]}`
		if got := w.Call(t, "POST", "/tokens", w.private, body); got.Status != 201 {
			t.Fatalf("POST /tokens = %s", got)
		}
	}
	app := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/pci/", Transform: "mask", Permissions: []string{"token:use"}, Priority: new(1)},
		{Container: "/bank/", Transform: "redact", Permissions: []string{"token:use"}, Priority: new(2)},
	}}).ID
	in := `{"application_id":"` + app + `","body":["{{ in-pci }}","{{ in-bank | json: '$.x' }}","{{ in-none }}","{{ ` + numeric + ` }}"]}`
	var got api.ProxyPreview
	w.Call(t, "POST", "/proxies/"+w.proxy.ID+"/preview", w.management, in).Into(t, 200, &got)
	if got.Allowed || got.Body != `["[token]","[token]","[token]","[token]"]` || len(got.Tokens) != 4 {
		t.Fatalf("the preview is %+v", got)
	}
	for i, want := range []string{
		"in-pci token /pci/ allowed true as mask by rule 0", "in-bank token /bank/ allowed false as  by rule 1", "in-none token /none/ allowed false as  by rule -1",
		" token /pci/ allowed true as mask by rule 0",
	} {
		p, rule := got.Tokens[i], -1
		if p.DecidedBy.Rule != nil {
			rule = *p.DecidedBy.Rule
		}
		if text := fmt.Sprintf("%s %s %s allowed %t as %s by rule %d", p.ID, p.Type, strings.Join(p.Containers, " "), p.Allowed, p.Transform, rule); text != want || p.Shown != "placeholder" {
			t.Errorf("token %d is %s, shown as a %s, want %s", i, text, p.Shown, want)
		}
	}
	// An anonymous call is judged by the application of the proxy.
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false,"application_id":"`+app+`"}`)
	w.Call(t, "POST", "/proxies/"+open.ID+"/preview", w.management, `{"body":["{{ in-none }}"]}`).Into(t, 200, &got)
	if got.Allowed || !got.Anonymous || got.Tokens[0].Allowed {
		t.Errorf("the preview of an anonymous call is %+v", got)
	}
}

func TestBodiesOfEveryTypeArePreviewed(t *testing.T) {
	w := start(t, nil, nil)
	id := w.token(t, card)
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false}`)
	for media, c := range map[string]struct{ body, want string }{
		"text/plain":                        {"a {{ " + id + " }}", "a [token]"},
		"application/x-www-form-urlencoded": {"a={{ " + id + " }}&b=%7B", "a=%5Btoken%5D&b=%7B"},
		"application/xml":                   {"<a>{{ " + id + " }}</a>", "<a>[token]</a>"},
		"multipart/form-data; boundary=x":   {"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n{{ " + id + " }}\r\n--x--\r\n", "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n[token]\r\n--x--\r\n"},
		"application/octet-stream":          {"{{ " + id + " }}", "{{ " + id + " }}"},
		"":                                  {"{{ " + id + " }}", "[token]"},
	} {
		in := api.PreviewProxy{Method: "PUT", Body: quoted(t, c.body)}
		if media != "" {
			in.Headers = map[string]string{"content-type": media}
		}
		var got api.ProxyPreview
		w.Call(t, "POST", "/proxies/"+open.ID+"/preview", w.management, string(quoted(t, in))).Into(t, 200, &got)
		if got.Body != c.want || got.Method != "PUT" || !got.Anonymous {
			t.Errorf("the preview of %q is %+v, want %q", media, got, c.want)
		}
	}
	// A key for retries is nothing to a preview: it is done again, whatever it says.
	w.Call(t, "POST", "/proxies/"+open.ID+"/preview", w.management, `{"path":"/first"}`, "SVC-IDEMPOTENCY-KEY", "k").Into(t, 200, &api.ProxyPreview{})
	var got api.ProxyPreview
	w.Call(t, "POST", "/proxies/"+open.ID+"/preview", w.management, `{}`, "SVC-IDEMPOTENCY-KEY", "k").Into(t, 200, &got)
	if got.Method != "GET" || got.URL != w.to.URL+"/" || got.Body != "" || got.Tokens == nil {
		t.Errorf("the preview of nothing is %+v", got)
	}
}

func quoted(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatEndsACallEndsItsPreview(t *testing.T) {
	w := start(t, nil, nil)
	app := func(kind string, permissions ...string) string {
		return w.Application(t, w.tenant, api.CreateApplication{Type: kind, Permissions: permissions}).ID
	}
	user := app("private", "token:use")
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false}`)
	stranger := w.Tenant(t)
	as := func(application, rest string) string { return `{"application_id":"` + application + `"` + rest + `}` }
	for name, c := range map[string]struct {
		proxy, key, in string
		status         int
		detail         string
	}{
		"nobody":                           {w.proxy.ID, w.management, `{}`, 400, "the proxy asks for an API key"},
		"somebody where nobody is asked":   {open.ID, w.management, as(user, ""), 400, "asks for no API key"},
		"an unknown application":           {w.proxy.ID, w.management, as(w.tenant, ""), 400, "must be an application of the tenant"},
		"another tenant's application":     {w.proxy.ID, w.management, as(stranger.Application.ID, ""), 400, "must be an application of the tenant"},
		"another tenant's proxy":           {w.proxy.ID, stranger.Application.Key, as(user, ""), 404, "no such proxy"},
		"an application that can use none": {w.proxy.ID, w.management, as(app("private", "token:read"), ""), 403, "token:use"},
		"a management application":         {w.proxy.ID, w.management, as(app("management", "log:read"), ""), 403, "token:use"},
		"a token that is not there":        {w.proxy.ID, w.management, as(user, `,"body":["{{ nosuch }}"]`), 400, "Failed to detokenize some tokens: nosuch"},
		"an expression that is none":       {w.proxy.ID, w.management, as(user, `,"body":["{{ a | nofilter }}"]`), 400, ""},
		"a path that leads out":            {w.proxy.ID, w.management, as(user, `,"path":"/a/..%2fb"`), 400, ".. segments"},
		"a path without a slash":           {w.proxy.ID, w.management, as(user, `,"path":"a"`), 400, "must begin with a slash"},
		"a path with a query":              {w.proxy.ID, w.management, as(user, `,"path":"/a?b"`), 400, "percent-encoded"},
		"a query with a space":             {w.proxy.ID, w.management, as(user, `,"query":"a b"`), 400, "percent-encoded"},
		"a header in two lines":            {w.proxy.ID, w.management, as(user, `,"headers":{"A":"b\r\nC: d"}`), 400, "control characters"},
		"a connection of its own":          {w.proxy.ID, w.management, as(user, `,"headers":{"SVC-PROXY-CONNECTION":"upgrade"}`), 400, "keep-alive or close"},
		"a method that is none":            {w.proxy.ID, w.management, as(user, `,"method":"A B"`), 400, "method"},
		"CONNECT":                          {w.proxy.ID, w.management, as(user, `,"method":"CONNECT"`), 400, "CONNECT"},
		"JSON that is none":                {w.proxy.ID, w.management, as(user, `,"headers":{"Content-Type":"application/json"},"body":"{{"`), 400, "JSON"},
		"a caller without the permission":  {w.proxy.ID, w.private, as(user, ""), 403, "proxy:read"},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.Call(t, "POST", "/proxies/"+c.proxy+"/preview", c.key, c.in)
			if got.Status != c.status || !strings.Contains(got.Body, c.detail) {
				t.Errorf("the preview = %s, want %d and %q", got, c.status, c.detail)
			}
			got.CheckProblem(t)
		})
	}
	if seen := w.to.take(); len(seen) != 0 {
		t.Errorf("the destination got %d requests", len(seen))
	}
}

func TestAForbiddenDestinationHasNoPreview(t *testing.T) {
	w := start(t, map[string]string{"allow_networks": "10.0.0.0/8"}, nil)
	p := w.define(t, `{"name":"inside","destination_url":"https://10.1.2.3/","require_auth":false}`)
	if got := w.Call(t, "POST", "/proxies/"+p.ID+"/preview", w.management, `{}`); got.Status != 200 {
		t.Errorf("the preview = %s, want 200", got)
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	k := keeptest.Start(t, keeptest.Options{Data: w.Data})
	if got := k.Call(t, "POST", "/proxies/"+p.ID+"/preview", w.management, `{}`); got.Status != 400 || !strings.Contains(got.Body, "destination") {
		t.Errorf("the preview of what is no longer allowed = %s, want 400", got)
	}
}

func TestAPreviewIsInTheLogAsARead(t *testing.T) {
	w := start(t, nil, nil)
	id := w.token(t, card)
	user := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:use"}}).ID
	none := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{
		{Container: "/pci/", Transform: "reveal", Permissions: []string{"token:use"}},
	}}).ID
	for _, application := range []string{user, none} {
		w.Call(t, "POST", "/proxies/"+w.proxy.ID+"/preview", w.management, `{"application_id":"`+application+`","path":"/secret-path","body":["{{ `+id+` }}{{ `+id+` }}"]}`)
	}
	var list api.List[api.LogEntry]
	w.Call(t, "GET", "/logs?size=100", w.management, "").Into(t, 200, &list)
	count := make(map[string]int)
	for _, e := range list.Data {
		if e.Operation == "create" {
			continue
		}
		count[e.Message]++
		if e.ActorID == user || e.ActorID == none || e.EntityID != id && e.EntityID != w.proxy.ID {
			t.Errorf("the log has %+v", e)
		}
	}
	if len(count) != 2 || count["Proxy retrieved"] != 2 || count["Token retrieved by proxy preview"] != 2 {
		t.Errorf("the log has %v, want two looks at the proxy and at the token", count)
	}
	if strings.Contains(w.Log.String(), "secret-path") {
		t.Error("the server's log has a path of a preview")
	}
}
