package proxy_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

// reactor makes a reactor, with these fields beside its name and code.
func (w *world) reactor(t testing.TB, code string, more map[string]any) string {
	t.Helper()
	in := map[string]any{"name": "r", "code": code, "configuration": map[string]string{}}
	for name, v := range more {
		in[name] = v
	}
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var made api.Reactor
	w.Call(t, "POST", "/reactors", w.management, string(body)).Into(t, 201, &made)
	return made.ID
}

// TestReactorsOfAProxyRunAsItsTransforms: with the reactor's own code,
// configuration and application, as they are at the call.
func TestReactorsOfAProxyRunAsItsTransforms(t *testing.T) {
	storetest.Long(t)
	w := start(t, map[string]string{"sandbox.level": "unsafe_none", "sandbox.runtime": runtimetest.Find(t).Folder}, nil)
	id := w.token(t, card)
	app := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
	request := w.reactor(t, `module.exports = async ({args, configuration, bt}) => {
		const made = await bt.tokens.create({type: 'token', data: args.body.number});
		return {raw: {body: {by: made.createdBy, path: args.path, number: args.body.number}, headers: {...args.headers, Authorization: configuration.SECRET}}};
	}`, map[string]any{"configuration": map[string]string{"SECRET": "of the reactor"}, "application": map[string]string{"id": app.ID}})
	response := w.reactor(t, `module.exports = async ({args, bt}) => ({body: {status: args.status, was: args.body, bt}, headers: {'Content-Type': 'application/json'}})`, nil)
	body := func(more string) string {
		return `{"name":"p","destination_url":"` + w.to.URL + `/base","configuration":{"SECRET":"of the proxy"},"request_reactor_id":"` + request + `","response_reactor_id":"` + response + `"` + more + `}`
	}
	for name, more := range map[string]string{"with an API key": "", "without one": `,"require_auth":false`} {
		w.proxy = w.define(t, body(more))
		got := w.send(t, "POST", "/a", "application/json", `{"number":"{{ `+id+` }}"}`)
		if got.Status != 200 || got.Body != `{"status":200,"was":"ok","bt":null}` {
			t.Errorf("%s, the response is %s, want what the reactor makes of it", name, got)
		}
		sent := w.one(t)
		if want := `{"by":"` + app.ID + `","path":"/a","number":"` + card + `"}`; sent.body != want || sent.header.Get("Authorization") != "of the reactor" {
			t.Errorf("%s, the destination got %q, want %s with the reactor's secret", name, sent.raw, want)
		}
	}
	var log api.List[api.LogEntry]
	w.Call(t, "GET", "/logs?size=100&entity_type=reactor&entity_id="+request, w.management, "").Into(t, 200, &log)
	uses := 0
	for _, e := range log.Data {
		if e.Operation == "use" {
			uses++
		}
	}
	if uses != 2 {
		t.Errorf("the log has %d uses of the reactor, want one for each call", uses)
	}

	var preview api.ProxyPreview
	w.Call(t, "POST", "/proxies/"+w.proxy.ID+"/preview", w.management, `{"body":{"number":"x"}}`).Into(t, 200, &preview)
	if preview.RequestTransform != "not run" || preview.ResponseTransform != "not run" {
		t.Errorf("of its transforms the preview says %q and %q, want that they were not run", preview.RequestTransform, preview.ResponseTransform)
	}

	for _, c := range []struct {
		name, code string
		status     int
		want       string
	}{
		{"a change takes effect with the next call", `module.exports = async () => ({body: {changed: 1}})`, 200, ""},
		{"and the next", `module.exports = async () => ({body: {changed: 2}})`, 200, ""},
		{"an error with a value in it", `module.exports = async ({args}) => { throw new Error('bad ' + args.body.number) }`, 422, `"detail":"bad [protected]"`},
		{"a response of its own", `module.exports = async () => { throw {name: 'CustomHttpResponseError', status: 418, body: {a: 1}} }`, 418, `{"a":1}`},
		{"a result that is none of a transform", `module.exports = async () => ({raw: 1})`, 422, "a transform must return an object with body, headers or both"},
		{"a tokenize that nobody would do", `module.exports = async () => ({raw: {body: {}}, tokenize: 'x'})`, 422, "a reactor that is a transform must tokenize with req.bt"},
	} {
		patch, err := json.Marshal(map[string]string{"code": c.code})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Call(t, "PATCH", "/reactors/"+request, w.management, string(patch)); got.Status != 204 {
			t.Fatalf("PATCH of the reactor = %s", got)
		}
		got := w.send(t, "POST", "/a", "application/json", `{"number":"{{ `+id+` }}"}`)
		if got.Status != c.status || !strings.Contains(got.Body, c.want) {
			t.Errorf("%s: %s, want %d with %s", c.name, got, c.status, c.want)
		}
		seen := w.to.take()
		if c.status == 200 && (len(seen) != 1 || !strings.Contains(c.code, strings.Trim(seen[0].body, `{}"`)[len(`changed":`):])) || c.status != 200 && len(seen) != 0 {
			t.Errorf("%s: the destination got %v", c.name, seen)
		}
	}

	w.Call(t, "PATCH", "/reactors/"+request, w.management, `{"application":{"id":null}}`)
	gone := w.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}})
	w.Call(t, "PATCH", "/reactors/"+request, w.management, `{"code":"module.exports = async ({bt}) => ({body: {bt: bt !== null}})","application":{"id":"`+gone.ID+`"}}`)
	if got := w.Call(t, "DELETE", "/applications/"+gone.ID, w.management, ""); got.Status != http.StatusConflict {
		t.Errorf("DELETE of the application of a reactor = %s, want 409", got)
	}
	w.send(t, "POST", "/a", "application/json", `{}`)
	if got := w.one(t); got.body != `{"bt":true}` {
		t.Errorf("with an application the destination got %q", got.body)
	}
}

// TestWhichReactorsAProxyMayName: those of the tenant, in place of code, by
// callers who may read them.
func TestWhichReactorsAProxyMayName(t *testing.T) {
	w := start(t, nil, nil)
	const code = `module.exports = async (r) => r.args`
	id, another := w.reactor(t, code, nil), w.reactor(t, code, nil)
	other := start(t, nil, nil).reactor(t, code, nil)
	stranger := w.Tenant(t).Application.Key
	var theirs api.Reactor
	w.Call(t, "POST", "/reactors", stranger, `{"name":"r","code":"`+code+`","configuration":{}}`).Into(t, 201, &theirs)
	const base = `{"name":"n","destination_url":"https://a.example.org"`
	for _, member := range []string{"request_reactor_id", "response_reactor_id"} {
		transform := strings.Replace(member, "reactor_id", "transform", 1)
		for name, c := range map[string]struct{ more, code string }{
			"an unknown one":    {`"` + member + `":"b7f1d3a0-0000-4000-8000-000000000001"`, "reactor_unknown"},
			"no id at all":      {`"` + member + `":"` + card + `"`, "reactor_unknown"},
			"of another tenant": {`"` + member + `":"` + theirs.ID + `"`, "reactor_unknown"},
			"of another server": {`"` + member + `":"` + other + `"`, "reactor_unknown"},
			"a proxy":           {`"` + member + `":"` + w.proxy.ID + `"`, "reactor_unknown"},
			"beside code":       {`"` + member + `":"` + id + `","` + transform + `":{"code":"` + code + `"}`, "transform_mismatch"},
		} {
			calls := map[string]string{
				"POST /proxies": base + `,` + c.more + `}`, "PUT /proxies/" + w.proxy.ID: base + `,` + c.more + `}`, "PATCH /proxies/" + w.proxy.ID: `{` + c.more + `}`,
			}
			for call, body := range calls {
				method, path, _ := strings.Cut(call, " ")
				got := w.Call(t, method, path, w.management, body)
				var p api.Problem
				got.Into(t, 400, &p)
				if len(p.Errors) != 1 || len(p.Errors[member]) != 1 || p.Code != c.code || strings.Contains(got.Body, card) {
					t.Errorf("%s with %s = %s, want %s under %s", call, name, got, c.code, member)
				}
			}
		}
		// What was read can be written back, and null and what is left out remove.
		p := w.define(t, base+`,"`+member+`":"`+id+`","`+transform+`":{}}`)
		read := w.Call(t, "GET", "/proxies/"+p.ID, w.management, "")
		for _, method := range []string{"PUT", "PATCH"} {
			w.Call(t, method, "/proxies/"+p.ID, w.management, read.Body)
			var got api.Proxy
			w.Call(t, "GET", "/proxies/"+p.ID, w.management, "").Into(t, 200, &got)
			if got.RequestReactorID+got.ResponseReactorID != id || got.RequestTransform != nil || got.ResponseTransform != nil {
				t.Errorf("after %s of what was read it is %+v", method, got)
			}
		}
		var rotated api.Proxy
		w.Call(t, "POST", "/proxies/"+p.ID+"/rotate-key", w.management, "").Into(t, 200, &rotated)
		if rotated.RequestReactorID+rotated.ResponseReactorID != id || rotated.Key == p.Key {
			t.Errorf("with another key it is %+v", rotated)
		}
		deleting := func(name string, status int, detail string) {
			t.Helper()
			if got := w.Call(t, "DELETE", "/reactors/"+id, w.management, ""); got.Status != status || !strings.Contains(got.Body, detail) {
				t.Errorf("DELETE of a reactor %s = %s, want %d %s", name, got, status, detail)
			}
		}
		deleting("in use", 409, `"the reactor is in use; proxies that name it: 1","code":"reactor_in_use"`)
		second := w.define(t, base+`,"`+member+`":"`+id+`"}`)
		deleting("in use twice", 409, `proxies that name it: 2"`)
		w.Call(t, "DELETE", "/proxies/"+second.ID, w.management, "")
		for _, c := range []struct{ method, body, want string }{
			{"PATCH", `{"` + member + `":"` + another + `"}`, another}, {"PATCH", `{"` + member + `":null}`, ""}, {"PUT", base + `,"` + member + `":"` + another + `"}`, another},
			{"PATCH", `{"` + member + `":null,"` + transform + `":{"code":"` + code + `"}}`, ""}, {"PATCH", `{"` + member + `":"` + another + `","` + transform + `":null}`, another},
			{"PUT", base + `}`, ""},
		} {
			w.Call(t, c.method, "/proxies/"+p.ID, w.management, c.body)
			var got api.Proxy
			w.Call(t, "GET", "/proxies/"+p.ID, w.management, "").Into(t, 200, &got)
			if got.RequestReactorID+got.ResponseReactorID != c.want {
				t.Errorf("after %s %s it is %+v, want %q", c.method, c.body, got, c.want)
			}
		}
		if got := w.Call(t, "DELETE", "/reactors/"+id, stranger, ""); got.Status != 404 {
			t.Errorf("DELETE of another tenant's reactor = %s, want 404", got)
		}
		deleting("that nothing names any more", 204, "")
		deleting("that is gone", 404, "")
		id = w.reactor(t, code, nil)
	}
}

// TestNamingAReactorTakesReactorRead: whoever decides what a proxy sends where
// gets what the reactor's code makes of its configuration.
func TestNamingAReactorTakesReactorRead(t *testing.T) {
	w := start(t, nil, nil)
	id := w.reactor(t, `module.exports = async (r) => r.args`, nil)
	manager := func(permissions ...string) string {
		return w.Application(t, w.tenant, api.CreateApplication{Type: "management", Permissions: permissions}).Key
	}
	blind, sees := manager("proxy:create", "proxy:update", "proxy:read"), manager("proxy:create", "proxy:update", "reactor:read")
	const base = `{"name":"n","destination_url":"https://a.example.org"`
	naming := base + `,"request_reactor_id":"` + id + `"}`
	p := w.define(t, naming)
	for _, c := range []struct {
		name, key, call, body string
		status                int
	}{
		{"creating", blind, "POST /proxies", naming, 403},
		{"creating, of one that is not there", blind, "POST /proxies", base + `,"request_reactor_id":"b7f1d3a0-0000-4000-8000-000000000001"}`, 403},
		{"replacing", blind, "PUT /proxies/" + p.ID, naming, 403},
		{"naming it in a patch", blind, "PATCH /proxies/" + w.proxy.ID, `{"response_reactor_id":"` + id + `"}`, 403},
		{"leading such a proxy elsewhere", blind, "PATCH /proxies/" + p.ID, `{"destination_url":"https://evil.example.org"}`, 403},
		{"opening such a proxy", blind, "PATCH /proxies/" + p.ID, `{"require_auth":false}`, 403},
		{"a proxy that names none", blind, "POST /proxies", base + `}`, 201},
		{"creating, with reactor:read", sees, "POST /proxies", naming, 201},
		{"changing, with reactor:read", sees, "PATCH /proxies/" + p.ID, `{"destination_url":"https://b.example.org"}`, 204},
		{"removing it", blind, "PATCH /proxies/" + p.ID, `{"request_reactor_id":null}`, 204},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		got := w.Call(t, method, path, c.key, c.body)
		if got.Status != c.status || c.status == 403 && !strings.Contains(got.Body, "reactor:read") {
			t.Errorf("%s = %s, want %d", c.name, got, c.status)
		}
	}
}

// TestNoProxyNamesAReactorThatIsGone: of a proxy that is made while its reactor
// is deleted, one of both succeeds.
func TestNoProxyNamesAReactorThatIsGone(t *testing.T) {
	w := start(t, nil, nil)
	for range 10 {
		id := w.reactor(t, `module.exports = async (r) => r.args`, nil)
		var made, deleted int
		var group sync.WaitGroup
		group.Go(func() {
			made = w.Call(t, "POST", "/proxies", w.management, `{"name":"n","destination_url":"https://a.example.org","request_reactor_id":"`+id+`"}`).Status
		})
		group.Go(func() { deleted = w.Call(t, "DELETE", "/reactors/"+id, w.management, "").Status })
		group.Wait()
		if !(made == 201 && deleted == 409 || made == 400 && deleted == 204) {
			t.Errorf("making the proxy = %d, deleting its reactor = %d, want 201 and 409, or 400 and 204", made, deleted)
		}
	}
}
