package proxy_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
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
	const hidden = "XXXXXXXXXXXXXXXXXXXXXXXXXXXXngth"
	for name, c := range map[string]struct{ body, want string }{
		"JSON":                     {`{"card":"{{ ` + whole + ` | json: '$.number' }}","n":1.50}`, `{"card":"XXXXXXXXXXXX4242","n":1.50}`},
		"a default mask":           {`["{{ ` + text + ` }}"]`, `["` + hidden + `"]`},
		"a mask of its own":        {`["{{ ` + shown + ` }}"]`, `["secret***"]`},
		"a text around it":         {`["a {{ ` + text + ` }} b"]`, `["a ` + hidden + ` b"]`},
		"a filter that cuts":       {`["{{ ` + text + ` | slice: 0, 8 }}"]`, `["XXXXXXXX"]`},
		"a filter that measures":   {`["{{ ` + text + ` | replace: 'secret', '' | size }}"]`, `[32]`},
		"a filter that asks":       {`["{{ ` + text + ` | split: 'secret' | last }}"]`, `["` + hidden + `"]`},
		"what no mask shows":       {`["{{ ` + whole + ` | json: '$.cvc' }}"]`, `["XXXX"]`},
		"what a mask has no place": {`["{{ ` + shown + ` | json: '$.number' }}"]`, `["XXXX"]`},
		"a filter that fails":      {`["{{ ` + shown + ` | plus: 1 }}"]`, `["XXXX"]`},
		"the issuer":               {`["{{ token: ` + whole + ` | json: '$.card.bin' }}"]`, `["XXXX"]`},
		"the last four":            {`["{{ token: ` + whole + ` | json: '$.card.last4' }}"]`, `["XXXX"]`},
		"metadata":                 {`["{{ token: ` + whole + ` | json: '$.metadata.holder' }}"]`, `["XXXX"]`},
		"which token it is":        {`["{{ token: ` + whole + ` | json: '$.type' }}"]`, `["card"]`},
		"the data of a whole":      {`["{{ token: ` + whole + ` | json: '$.data.number' }}"]`, `["XXXXXXXXXXXX4242"]`},
	} {
		for _, proxy := range []api.Proxy{p, plain} {
			in := `{"application_id":"` + app.ID + `","path":"/a%2fb","query":"?c=d&svc-proxy-key=x","headers":{"X-A":"b","SVC-API-KEY":"x","Connection":"close","user-agent":"me"},"body":` + c.body + `}`
			answer := w.Call(t, "POST", "/proxies/"+proxy.ID+"/preview", w.management, in)
			var got api.ProxyPreview
			answer.Into(t, 200, &got)
			if got.Body != c.want || got.Method != "POST" || got.URL != to+"/base/a%2fb?k=1&c=d" || got.Anonymous || got.ResponseTransform != "" {
				t.Errorf("%s: the preview is %s, want %s", name, answer, c.want)
			}
			if want := map[bool]string{true: "not run"}[proxy.ID == p.ID]; got.RequestTransform != want {
				t.Errorf("%s: of its transform the preview says %q, want %q", name, got.RequestTransform, want)
			}
			if h := got.Headers; len(h) != 4 || h["X-A"] != "b" || h["User-Agent"] != "me" || h["Content-Type"] != api.MediaJSON || h["SVC-TRACE-ID"]+h["Svc-Trace-Id"] == "" {
				t.Errorf("%s: the headers are %v", name, h)
			}
			if len(got.Tokens) != 1 || got.Tokens[0].Transform != "reveal" || *got.Tokens[0].DecidedBy.Rule != 0 || got.Tokens[0].DecidedBy.Priority != 5 || len(got.Tokens[0].Steps) == 0 {
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

func TestBodiesOfEveryTypeArePreviewed(t *testing.T) {
	w := start(t, nil, nil)
	id := w.token(t, card)
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false}`)
	for media, c := range map[string]struct{ body, want string }{
		"text/plain":                        {"a {{ " + id + " }}", "a XXXXXXXXXXXX4242"},
		"application/x-www-form-urlencoded": {"a={{ " + id + " }}&b=%7B", "a=XXXXXXXXXXXX4242&b=%7B"},
		"application/xml":                   {"<a>{{ " + id + " }}</a>", "<a>XXXXXXXXXXXX4242</a>"},
		"multipart/form-data; boundary=x":   {"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n{{ " + id + " }}\r\n--x--\r\n", "--x\r\nContent-Disposition: form-data; name=a\r\n\r\nXXXXXXXXXXXX4242\r\n--x--\r\n"},
		"application/octet-stream":          {"{{ " + id + " }}", "{{ " + id + " }}"},
		"":                                  {"{{ " + id + " }}", "{{ " + id + " }}"},
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
	const id = "one-token" // a UUID may look like a card number, which errors leave out
	if got := w.Call(t, "POST", "/tokens", w.private, `{"id":"`+id+`","type":"token","data":"`+card+`"}`); got.Status != 201 {
		t.Fatalf("POST /tokens = %s", got)
	}
	app := func(kind string, permissions ...string) string {
		return w.Application(t, w.tenant, api.CreateApplication{Type: kind, Permissions: permissions}).ID
	}
	ruled := func(rules ...api.Rule) string {
		return w.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: rules}).ID
	}
	user := app("private", "token:use")
	elsewhere := ruled(api.Rule{Container: "/pci/", Transform: "reveal", Permissions: []string{"token:use"}})
	redacted := ruled(api.Rule{Container: "/pci/", Transform: "reveal", Permissions: []string{"token:use"}, Priority: new(1)},
		api.Rule{Container: "/", Transform: "redact", Permissions: []string{"token:use"}, Priority: new(2)})
	open := w.define(t, `{"name":"open","destination_url":"`+w.to.URL+`","require_auth":false,"application":{"id":"`+elsewhere+`"}}`)
	stranger := w.Tenant(t)
	as := func(application, rest string) string { return `{"application_id":"` + application + `"` + rest + `}` }
	body := `,"body":["{{ ` + id + ` }}"]`
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
		"another container":                {w.proxy.ID, w.management, as(elsewhere, body), 403, "no rule and no plain permission"},
		"a rule that shows nothing":        {w.proxy.ID, w.management, as(redacted, body), 403, "from 0, and token: 1: " + id},
		"anonymous, another container":     {open.ID, w.management, `{"body":["{{ ` + id + ` }}"]}`, 403, "no rule and no plain permission"},
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
