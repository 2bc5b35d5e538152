// Package bt_test calls the service from inside reactor code: with req.bt, in
// the real sandbox, on a whole server.
package bt_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

const visa = "4242424242424242"

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// house is a server with a tenant and somebody who may use reactors.
type house struct {
	*keeptest.Server
	t       *testing.T
	tenant  string
	manager string // keys
	user    string
	prefix  string
}

func openHouse(t *testing.T, o keeptest.Options) *house {
	t.Helper()
	if o.Settings == nil {
		o.Settings = make(map[string]string)
	}
	o.Settings["sandbox.level"], o.Settings["sandbox.runtime"] = "reduced", runtimetest.Find(t).Folder
	h := &house{Server: keeptest.Start(t, o), t: t, prefix: o.Settings["header_prefix"]}
	t.Cleanup(func() {
		for _, value := range []string{visa, "key_test_"} {
			if strings.Contains(h.Log.String(), value) {
				t.Errorf("the server's log holds %s", value)
			}
		}
	})
	h.newTenant()
	return h
}

func (h *house) newTenant() {
	h.t.Helper()
	made := h.Tenant(h.t)
	h.tenant, h.manager = made.Tenant.ID, made.Application.Key
	h.user = h.application("private", nil, "token:use", "token:create").Key
}

func (h *house) application(class string, rules []api.Rule, permissions ...string) api.Application {
	h.t.Helper()
	return h.Application(h.t, h.tenant, api.CreateApplication{Type: class, Permissions: permissions, Rules: rules})
}

// all is an application that may do everything with tokens, in clear.
func (h *house) all() api.Application {
	h.t.Helper()
	return h.application("private", []api.Rule{{
		Container: "/", Transform: "reveal", Permissions: []string{"token:create", "token:read", "token:update", "token:delete", "token:search", "token:use"},
	}})
}

func (h *house) call(method, path, key, body string, headers ...string) keeptest.Answer {
	h.t.Helper()
	if h.prefix != "" {
		headers = append(headers, h.prefix+"-API-KEY", key)
		key = ""
	}
	return h.Call(h.t, method, path, key, body, headers...)
}

// define makes a reactor with the rights of an application, or none for "".
func (h *house) define(application, code string) string {
	h.t.Helper()
	in := api.WriteReactor{Name: "r", Code: code, Configuration: map[string]string{}}
	if application != "" {
		in.Application = &api.ApplicationRef{ID: application}
	}
	body, err := json.Marshal(in)
	if err != nil {
		h.t.Fatal(err)
	}
	var made api.Reactor
	h.call(http.MethodPost, "/reactors", h.manager, string(body)).Into(h.t, http.StatusCreated, &made)
	return made.ID
}

// run runs a reactor and reads what it returned in clear.
func (h *house) run(id, args string, v any) {
	h.t.Helper()
	var out struct{ Raw json.RawMessage }
	h.call(http.MethodPost, "/reactors/"+id+"/react", h.user, `{"args":`+args+`}`).Into(h.t, http.StatusOK, &out)
	if err := json.Unmarshal(out.Raw, v); err != nil {
		h.t.Fatalf("the code returned %s: %v", out.Raw, err)
	}
}

func TestEveryCallOnTokens(t *testing.T) {
	h := openHouse(t, keeptest.Options{})
	application := h.all()
	id := h.define(application.ID, `module.exports = async ({ bt }) => {
  const made = await bt.tokens.create({ type: 'token', id: 'mine', data: { snake_name: 'v', camelName: 1 }, metadata: { order_id: '7' }, expiresAt: '2999-01-01T00:00:00Z' });
  const got = await bt.tokens.retrieve('mine');
  const changed = await bt.tokens.update('mine', { metadata: { order_id: '8' } });
  const listed = await bt.tokens.list({ metadata: { order_id: '8' }, size: 5 });
  const found = await bt.tokens.search({ query: 'metadata.order_id:8', page: 1, size: 10 });
  const tokenized = await bt.tokenize({ card: { type: 'card', data: { number: '`+visa+`' } }, text: 'abc' });
  const opened = await bt.detokenize({ n: '{{ ' + tokenized.card.id + ' | json: "$.number" }}', t: '{{ ' + tokenized.text + ' }}' });
  const gone = await bt.tokens.delete('mine');
  const after = await bt.tokens.retrieve('mine').catch((e) => e.status);
  return { raw: { made, got, changed, listed, found, opened, gone: gone === undefined, after } };
}`)
	var got struct {
		Made, Got, Changed map[string]any
		Listed, Found      struct {
			Pagination map[string]any
			Data       []map[string]any
		}
		Opened map[string]string
		Gone   bool
		After  int
	}
	h.run(id, `{}`, &got)
	for name, pair := range map[string][2]string{
		"id":                  {fmt.Sprint(got.Made["id"]), "mine"},
		"names of a token":    {fmt.Sprintf("%v %v", got.Made["tenantId"], got.Made["createdBy"]), h.tenant + " " + application.ID},
		"expiry":              {fmt.Sprint(got.Got["expiresAt"])[:10], "2999-01-01"},
		"names inside data":   {fmt.Sprint(got.Got["data"]), "map[camelName:1 snake_name:v]"},
		"metadata":            {fmt.Sprint(got.Got["metadata"]), "map[order_id:7]"},
		"changed metadata":    {fmt.Sprint(got.Changed["metadata"]), "map[order_id:8]"},
		"a list":              {fmt.Sprint(len(got.Listed.Data), got.Listed.Pagination["totalItems"], got.Listed.Pagination["pageSize"]), "1 1 5"},
		"a search":            {fmt.Sprint(len(got.Found.Data), got.Found.Pagination["totalItems"]), "1 1"},
		"detokenized":         {fmt.Sprint(got.Opened), "map[n:" + visa + " t:abc]"},
		"deleted, then asked": {fmt.Sprint(got.Gone, got.After), "true 404"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %s, want %s", name, pair[0], pair[1])
		}
	}

	var logs api.List[api.LogEntry]
	h.call(http.MethodGet, "/logs?size=100", h.manager, "").Into(t, http.StatusOK, &logs)
	operations := map[string]int{}
	for _, e := range logs.Data {
		if e.EntityID == "mine" {
			operations[e.Operation]++
			if e.ActorID != application.ID || e.ActorType != "application" {
				t.Errorf("%s of the token is logged as by %s %s, want the application of the reactor", e.Operation, e.ActorType, e.ActorID)
			}
		}
	}
	for _, operation := range []string{"create", "read", "update", "delete"} {
		if operations[operation] == 0 {
			t.Errorf("no %s of the token is in the log: %v", operation, operations)
		}
	}
}

func TestCodeActsUnderTheRulesOfItsApplication(t *testing.T) {
	h := openHouse(t, keeptest.Options{})
	card := func(application string) string {
		return h.define(application, `module.exports = async ({ bt, args }) => {
  const told = async (call) => { try { return (await call()).data } catch (e) { return { status: e.status, title: e.data.title, errors: e.data.errors, name: e.name, error: e instanceof Error } } };
  return { raw: {
    read: await told(() => bt.tokens.retrieve(args.id)),
    make: await told(() => bt.tokens.create({ type: 'card_number', data: 'not a card' })),
    remove: await told(() => bt.tokens.delete(args.id)),
    missing: await told(() => bt.tokens.retrieve('nope')),
    tokenize: await told(() => bt.tokenize({ type: 'nope', data: 1 })),
  } };
}`)
	}
	var made api.Token
	h.call(http.MethodPost, "/tokens", h.user, `{"type":"card_number","data":"`+visa+`"}`).Into(t, http.StatusCreated, &made)
	for name, test := range map[string]struct {
		application api.Application
		read        string
		make        float64
	}{
		"masking":         {h.application("private", nil, "token:read", "token:create"), "XXXXXXXXXXXX4242", 400},
		"another place":   {h.application("private", []api.Rule{{Container: "/general/", Transform: "reveal", Permissions: []string{"token:read"}}}), "403", 403},
		"public, no read": {h.application("public", nil, "token:create"), "403", 400},
	} {
		var got map[string]any
		h.run(card(test.application.ID), `{"id":"`+made.ID+`"}`, &got)
		status := func(name string) any {
			m, _ := got[name].(map[string]any)
			return m["status"]
		}
		read := fmt.Sprint(got["read"])
		if s := status("read"); s != nil {
			read = fmt.Sprint(s)
		}
		if read != test.read || status("make") != test.make || status("remove") != 403.0 || status("missing") == nil || status("tokenize") == nil {
			t.Errorf("%s: the code got %v, want %s, %v, 403 and errors", name, got, test.read, test.make)
		}
		if test.make == 400 {
			m := got["make"].(map[string]any)
			if errs, _ := m["errors"].(map[string]any); errs["data"] == nil || m["error"] != true || m["title"] != api.ValidationTitle {
				t.Errorf("%s: the error of a bad token is %v", name, m)
			}
		}
	}
	var none map[string]any
	h.run(h.define("", `module.exports = async ({ bt }) => ({ raw: { none: bt === null } })`), `{}`, &none)
	if none["none"] != true {
		t.Error("code without an application has a client")
	}
}

// raw speaks to the service as hostile code can: past the client.
const raw = `const net = require('net');
const raw = (method, path, headers = '', body = '') => new Promise((done, failed) => {
  let text = '';
  const s = net.connect('/run/parent');
  s.setEncoding('utf8').on('data', (part) => (text += part)).on('end', () => done(text)).on('error', failed);
  s.write('A'.repeat(17) + method + ' ' + path + ' HTTP/1.1\r\nHost: service\r\nConnection: close\r\n' + headers + 'Content-Length: ' + Buffer.byteLength(body) + '\r\n\r\n' + body);
});
`

func TestOnlyTokensAreThereForCode(t *testing.T) {
	h := openHouse(t, keeptest.Options{})
	application := h.application("public", nil, "token:create")
	id := h.define(application.ID, raw+`module.exports = async ({ args }) => ({ raw: await raw(args.method, args.path, args.headers || '', args.body || '') })`)
	type call struct{ Method, Path, Headers, Body string }
	ask := func(c call) (answer string) {
		t.Helper()
		args, err := json.Marshal(map[string]string{"method": c.Method, "path": c.Path, "headers": c.Headers, "body": c.Body})
		if err != nil {
			t.Fatal(err)
		}
		h.run(id, string(args), &answer)
		return answer
	}
	manager := "SVC-API-KEY: " + h.manager + "\r\n"
	for _, c := range []call{
		{"POST", "/sessions", "", ""}, {"POST", "/sessions/authorize", "Content-Type: application/json\r\n", "{}"}, {"GET", "/sessions", manager, ""},
		{"GET", "/applications", manager, ""}, {"GET", "/applications/key", "", ""}, {"POST", "/applications/" + application.ID + "/keys", manager, ""},
		{"GET", "/tenants/self", manager, ""}, {"GET", "/tenants/self/callback-secret", manager, ""}, {"DELETE", "/tenants/self", manager, ""},
		{"GET", "/logs", manager, ""}, {"GET", "/permissions", manager, ""}, {"GET", "/reactors", manager, ""}, {"GET", "/reactors/" + id, manager, ""},
		{"DELETE", "/reactors/" + id, manager, ""}, {"GET", "/reactors/" + id + "/runs", manager, ""}, {"GET", "/metrics", "", ""}, {"GET", "/nope", "", ""},
		{"GET", "/Applications", manager, ""}, {"GET", "//applications", manager, ""}, {"GET", "/tokens/../applications", manager, ""}, {"GET", "/tokens/%2e%2e/applications", manager, ""},
	} {
		if answer := ask(c); !strings.HasPrefix(answer, "HTTP/1.1 404 ") && !strings.HasPrefix(answer, "HTTP/1.1 40") {
			t.Errorf("%s %s = %.200s, want nothing there", c.Method, c.Path, answer)
		} else if strings.Contains(answer, h.manager) || strings.Contains(answer, "key_test") {
			t.Errorf("%s %s told a key", c.Method, c.Path)
		}
	}
	// A key that code brings changes nothing: it stays the application of its reactor.
	var made api.Token
	h.call(http.MethodPost, "/tokens", h.user, `{"type":"token","data":"abcdef"}`).Into(t, http.StatusCreated, &made)
	if answer := ask(call{"GET", "/tokens/" + made.ID, "SVC-API-KEY: " + h.all().Key + "\r\n", ""}); !strings.HasPrefix(answer, "HTTP/1.1 403 ") {
		t.Errorf("with another's key, reading = %.200s, want 403", answer)
	}
	if answer := ask(call{"POST", "/tokens", "Content-Type: application/json\r\n", `{"type":"token","data":"abc"}`}); !strings.HasPrefix(answer, "HTTP/1.1 201 ") {
		t.Errorf("making a token = %.200s, want 201", answer)
	}
}

func TestNoKeyIsInTheSandbox(t *testing.T) {
	h := openHouse(t, keeptest.Options{})
	application := h.all()
	id := h.define(application.ID, raw+`const { inspect } = require('util');
module.exports = async (req) => {
  let text = inspect([req, process.env, process.argv, process.execArgv, process.config, module, globalThis], { depth: 8, showHidden: true, getters: true, maxStringLength: null, maxArrayLength: null });
  for (const f of Object.values(req.bt).concat(Object.values(req.bt.tokens))) text += String(f);
  for (const file of ['/proc/self/environ', '/proc/self/cmdline', '/app/runner.js', '/app/runtime.js']) { try { text += require('f' + 's').readFileSync(file, 'latin1') } catch {} }
  text += await raw('GET', '/tokens') + await raw('OPTIONS', '/tokens');
  return { raw: text };
}`)
	var text string
	h.run(id, `{}`, &text)
	if len(text) < 10_000 || !strings.Contains(text, "HTTP/1.1 200 OK") {
		t.Fatalf("the code saw %d characters: it did not look", len(text))
	}
	for name, key := range map[string]string{"the application": application.Key, "the manager": h.manager, "the caller": h.user, "anybody": "key_test_"} {
		if strings.Contains(text, key) {
			t.Errorf("the key of %s is in the sandbox", name)
		}
	}
}

func TestCodeCallsCodeThreeDeep(t *testing.T) {
	storetest.Long(t)
	h := openHouse(t, keeptest.Options{})
	application := h.all()
	id := h.define(application.ID, `module.exports = async ({ bt, args }) => {
  try {
    return { raw: (await bt.reactors.react(args.id, { args: { id: args.id, n: args.n + 1 } })).raw };
  } catch (e) {
    return { raw: { n: args.n, status: e.status, detail: e.data.detail } };
  }
}`)
	var got struct {
		N      int
		Status int
		Detail string
	}
	h.run(id, `{"id":"`+id+`","n":1}`, &got)
	if got.N != 3 || got.Status != 422 || !strings.Contains(got.Detail, "too often in a row") {
		t.Errorf("the innermost code is %+v, want the third, refused with 422", got)
	}

	mine := *h
	h.newTenant()
	h.run(h.define(h.all().ID, `module.exports = async ({ bt, args }) => ({ raw: await bt.reactors.react(args.id, {}).catch((e) => ({ status: e.status })) })`), `{"id":"`+id+`"}`, &got)
	if got.Status != 404 {
		t.Errorf("another tenant's reactor: %+v, want 404", got)
	}
	*h = mine
}

// TestRunsThatNobodyWaitsForAreNoWayAround asks for itself by callback.
func TestRunsThatNobodyWaitsForAreNoWayAround(t *testing.T) {
	storetest.Long(t)
	h := openHouse(t, keeptest.Options{})
	var mu sync.Mutex // guards bodies
	var bodies []string
	came := make(chan struct{}, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Raw    json.RawMessage
			Status int
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		bodies = append(bodies, fmt.Sprintf("%s%d", body.Raw, body.Status))
		mu.Unlock()
		came <- struct{}{}
	}))
	defer receiver.Close()
	application := h.all()
	id := h.define(application.ID, `module.exports = async ({ bt, args }) => {
  await bt.reactors.react(args.id, { args: { ...args, n: args.n + 1 }, callbackUrl: args.to });
  return { raw: args.n };
}`)
	h.call(http.MethodPost, "/reactors/"+id+"/react", h.user, `{"args":{"id":"`+id+`","n":1,"to":"`+receiver.URL+`"},"callback_url":"`+receiver.URL+`"}`).Into(t, http.StatusAccepted, new(struct{}))
	for range 4 { // three that ran, and what became of the fourth
		waittest.Receive(t, "what became of four runs", came)
	}
	mu.Lock()
	defer mu.Unlock()
	// A run asks for the next one before it has a result: who asked for a fifth is in the log.
	var log api.List[api.LogEntry]
	h.call(http.MethodGet, "/logs?size=100&entity_type=reactor&entity_id="+id, h.manager, "").Into(t, http.StatusOK, &log)
	started := 0
	for _, e := range log.Data {
		if e.Operation == "use" && e.Outcome == "allowed" {
			started++
		}
	}
	if started != 4 {
		t.Errorf("%d runs were asked for, want 4: %+v", started, log.Data)
	}
	if got := strings.Join(bodies, " "); !strings.Contains(got, "422") || !strings.Contains(got, "30") {
		t.Errorf("the receiver got %s, want results 1, 2 and 3 and a refusal", got)
	}
}

func TestWhatCodeReadOfASecurityCodeGoesWithIt(t *testing.T) {
	storetest.Long(t)
	var mu sync.Mutex // guards now
	now := time.Now().Truncate(time.Minute)
	h := openHouse(t, keeptest.Options{Now: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	application := h.all()
	var made api.Token
	h.call(http.MethodPost, "/tokens", application.Key, `{"type":"card","data":{"number":"`+visa+`","cvc":"987"}}`).Into(t, http.StatusCreated, &made)
	inner := h.define(application.ID, `module.exports = async ({ bt, args }) => { const t = await bt.tokens.retrieve(args.id); console.log(t.data.cvc); return { raw: t.data.cvc } }`)
	outer := h.define(application.ID, `module.exports = async ({ bt, args }) => ({ raw: (await bt.reactors.react(args.inner, { args })).raw })`)
	args := `{"args":{"id":"` + made.ID + `","inner":"` + inner + `"}}`
	type kept struct{ id, request string }
	var results []kept
	for _, id := range []string{inner, outer} {
		if a := h.call(http.MethodPost, "/reactors/"+id+"/react", h.user, args, "SVC-IDEMPOTENCY-KEY", "once"); a.Status != http.StatusOK || a.Body != `{"raw":"987"}` {
			t.Fatalf("the run returned %s", a)
		}
		var asked api.AsyncReactor
		h.call(http.MethodPost, "/reactors/"+id+"/react-async", h.user, args).Into(t, http.StatusAccepted, &asked)
		results = append(results, kept{id, asked.AsyncReactorRequestID})
		path := "/reactors/" + id + "/results/" + asked.AsyncReactorRequestID
		var a keeptest.Answer
		waittest.Until(t, "the result is there", func() bool {
			a = h.call(http.MethodGet, path, h.user, "")
			return a.Status != http.StatusNotFound
		})
		if a.Body != `{"raw":"987"}` {
			t.Errorf("the result is %s", a)
		}
	}
	mu.Lock()
	now = now.Add(time.Hour)
	mu.Unlock()
	for _, r := range results {
		if a := h.call(http.MethodGet, "/reactors/"+r.id+"/results/"+r.request, h.user, ""); a.Status != http.StatusConflict {
			t.Errorf("an hour later the result is %s, want 409", a)
		}
		if a := h.call(http.MethodPost, "/reactors/"+r.id+"/react", h.user, args, "SVC-IDEMPOTENCY-KEY", "once"); a.Status != http.StatusConflict {
			t.Errorf("an hour later the answer to a retry is %s, want 409", a)
		}
		var runs api.List[api.Run]
		if h.call(http.MethodGet, "/reactors/"+r.id+"/runs", h.manager, "").Into(t, http.StatusOK, &runs); len(runs.Data) != 0 {
			t.Errorf("an hour later %d runs are shown", len(runs.Data))
		}
	}
}

// TestAServerThatStopsLetsCodeEnd stops a server while code runs that nobody
// waits for, and asks the next one for the result.
func TestAServerThatStopsLetsCodeEnd(t *testing.T) {
	came, open := make(chan struct{}, 1), make(chan struct{})
	gate := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		came <- struct{}{}
		<-open
	}))
	defer gate.Close()
	data := filepath.Join(t.TempDir(), "data")
	h := openHouse(t, keeptest.Options{Data: data})
	id := h.define("", `const http = require('http');
module.exports = async (req) => {
  await new Promise((done, failed) => http.get(req.args.gate, (r) => { r.resume(); r.on('end', done) }).on('error', failed));
  return { raw: 'came to its end' };
}`)
	var asked api.AsyncReactor
	h.call(http.MethodPost, "/reactors/"+id+"/react-async", h.user, `{"args":{"gate":"`+gate.URL+`"}}`).Into(t, http.StatusAccepted, &asked)
	<-came
	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop() }()
	waittest.Until(t, "the server closes its door", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	close(open)
	if err := <-stopped; err != nil {
		t.Fatalf("stop: %v", err)
	}
	h.Server = keeptest.Start(t, keeptest.Options{Data: data})
	if a := h.call(http.MethodGet, "/reactors/"+id+"/results/"+asked.AsyncReactorRequestID, h.user, ""); a.Status != http.StatusOK || a.Body != `{"raw":"came to its end"}` {
		t.Errorf("the result is %s", a)
	}
}

func TestTheClientKnowsTheHeaderPrefix(t *testing.T) {
	storetest.Long(t)
	h := openHouse(t, keeptest.Options{Settings: map[string]string{"header_prefix": "ACME"}})
	id := h.define(h.all().ID, `module.exports = async ({ bt }) => {
  const ids = [];
  for (const idempotencyKey of ['a', 'a', 'b']) ids.push((await bt.tokens.create({ type: 'token', data: 'x' }, { idempotencyKey })).id);
  return { raw: ids };
}`)
	var ids []string
	h.run(id, `{}`, &ids)
	if len(ids) != 3 || ids[0] != ids[1] || ids[1] == ids[2] {
		t.Errorf("two calls with one idempotency key and one with another made %q", ids)
	}
}
