package contract_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

// TestNamesOfIDs resolves what exists, what is deleted and what another tenant
// has, with more and less permissions.
func TestNamesOfIDs(t *testing.T) {
	w := newWalk(t)
	management := func(permissions ...string) string {
		return w.server.Application(t, w.tenant, api.CreateApplication{Type: "management", Permissions: permissions}).Key
	}
	w.names["reader"] = management("log:read")
	w.names["reactors"] = management("log:read", "reactor:read")
	w.names["blind"] = management("application:read")
	app := w.server.Application(t, w.tenant, api.CreateApplication{Name: "Checkout", Type: "private", Permissions: []string{"token:create", "token:delete", "token:read"}})
	w.names["app"], w.names["server"] = app.ID, app.Key
	other := w.server.Tenant(t)
	w.names["theirs"], w.names["stranger"] = other.Application.ID, other.Application.Key
	made := func(name, path, body string) {
		t.Helper()
		var out struct{ ID string }
		w.server.Call(t, "POST", path, w.manager.Key, body).Into(t, 201, &out)
		w.names[name] = out.ID
	}
	made("reactor", "/reactors", `{"name":"Charge","code":"module.exports = async () => ({})","configuration":{}}`)
	made("proxy", "/proxies", `{"name":"PSP","destination_url":"https://psp.example.com"}`)
	made("gone", "/applications", `{"name":"Old","type":"private","permissions":["token:read"]}`)
	w.clock.Advance(time.Second) // entries of one moment are in no order
	w.server.Call(t, "DELETE", w.fill("/applications/{gone}"), w.manager.Key, "")
	for _, id := range []string{"card-live", "card-gone"} {
		w.server.Call(t, "POST", "/tokens", w.names["server"], `{"id":"`+id+`","type":"card_number","data":"`+visa+`"}`).Into(t, 201, new(api.Token))
	}
	w.clock.Advance(time.Second)
	w.server.Call(t, "DELETE", "/tokens/card-gone", w.names["server"], "")

	const all = "GET /names?id={reactor}&id={app}&id={proxy}&id={tenant}&id={gone}&id=card-live&id=card-gone&id={app}&id={theirs}&id={nothing}&id=*&id="
	w.step(step{name: "everything", call: all, status: 200, want: `[{"id":"{reactor}","kind":"reactor","name":"Charge"},{"id":"{app}","kind":"application","name":"Checkout"},` +
		`{"id":"{proxy}","kind":"proxy","name":"PSP"},{"id":"{tenant}","kind":"tenant","name":"<text>"},{"id":"{gone}","kind":"application","deleted":true},` +
		`{"id":"card-live","kind":"card_number"},{"id":"card-gone","kind":"card_number","deleted":true}]`})
	w.step(step{name: "names take the permission to read the thing", key: "reactors", call: "GET /names?id={app}&id={reactor}", status: 200,
		want: `[{"id":"{app}","kind":"application"},{"id":"{reactor}","kind":"reactor","name":"Charge"}]`})
	w.step(step{name: "kinds take log:read alone", key: "reader", call: "GET /names?id={app}&id={proxy}", status: 200,
		want: `[{"id":"{app}","kind":"application"},{"id":"{proxy}","kind":"proxy"}]`})
	w.step(step{name: "another tenant", key: "stranger", call: "GET /names?id={app}&id={tenant}&id=card-live&id={theirs}", status: 200,
		want: `[{"id":"{theirs}","kind":"application","name":"<text>"}]`})
	for _, key := range []string{"blind", "server"} {
		w.step(step{name: "without log:read", key: key, call: "GET /names?id={app}", status: 403, want: problem(403, "missing permission log:read")})
	}
	w.step(step{name: "no id", call: "GET /names", status: 400, want: refused("id", "is required, once or several times")})
	w.step(step{name: "as many as may be", call: "GET /names?id=x" + strings.Repeat("&id=x", 99), status: 200, want: `[]`})
	w.step(step{name: "too many", call: "GET /names?id=x" + strings.Repeat("&id=x", 100), status: 400, want: refused("id", "must be given at most 100 times")})

	logs := w.server.Call(t, "GET", "/logs?entity_type=log&size=100", w.manager.Key, "")
	if n := strings.Count(logs.Body, `"message":"Logs retrieved for names"`); n != 4 { // ours; the stranger's is in another log
		t.Errorf("%d entries of resolving names, want 4: %s", n, logs)
	}
}
