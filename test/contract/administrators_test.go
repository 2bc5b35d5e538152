package contract_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// The tests of this file show what docs/access.md says that administrators can
// do. They are no wishes: where one fails because something got safer, the page
// is to be changed with it.

const adminCard = "4242424242424242"

// administered is a walk with a token "card-1" in /pci/high/, an application
// "server" that may read it, and a destination that keeps what it is sent.
type administered struct {
	*walk
	destination string
	received    func() string // the body that came since the last time; "" for none
}

func newAdministered(t *testing.T) *administered {
	t.Helper()
	w := newWalk(t)
	app := w.server.Application(t, w.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:create"}, Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:read", "token:use"}},
	}})
	w.names["server"], w.names["server_key"] = app.ID, app.Key
	if got := w.server.Call(t, "POST", "/tokens", app.Key, `{"id":"card-1","type":"card","data":{"number":"`+adminCard+`"}}`); got.Status != 201 {
		t.Fatalf("POST /tokens = %s", got)
	}
	bodies := make(chan string, 1)
	to := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies <- string(b)
	}))
	t.Cleanup(to.Close)
	return &administered{w, to.URL, func() string {
		select {
		case body := <-bodies:
			return body
		default:
			return ""
		}
	}}
}

// holder is a management application with nothing but these permissions.
func (w *administered) holder(permissions ...string) api.Application {
	w.t.Helper()
	return w.server.Application(w.t, w.tenant, api.CreateApplication{Type: "management", Permissions: permissions})
}

// reads reports whether a key reads the value of the token.
func (w *administered) reads(key string) bool {
	w.t.Helper()
	return strings.Contains(w.server.Call(w.t, "GET", "/tokens/card-1", key, "").Body, adminCard)
}

// logged fails unless the log has an entry of these words by an application.
func (w *administered) logged(message string, by api.Application) {
	w.t.Helper()
	var list api.List[api.LogEntry]
	w.server.Call(w.t, "GET", "/logs?size=100", w.manager.Key, "").Into(w.t, 200, &list)
	for _, e := range list.Data {
		if e.Message == message && e.ActorID == by.ID {
			return
		}
	}
	w.t.Errorf("the log has no %q of the holder", message)
}

const readsAll = `"rules":[{"container":"/","transform":"reveal","permissions":["token:read"]}]`

func TestWhoMakesOrChangesApplicationsCanReadEverything(t *testing.T) {
	w := newAdministered(t)
	for name, test := range map[string]struct {
		permission, call, body, message string
	}{
		"a new application":     {"application:create", "POST /applications", `{"name":"x","type":"private",` + readsAll + `}`, "Application created"},
		"another's key":         {"application:update", "POST /applications/{server}/regenerate", "", "Application rotated"},
		"one more key of it":    {"application:update", "POST /applications/{other}/keys", "", "Key created"},
		"a narrow one, widened": {"application:update", "PUT /applications/{narrow}", `{"name":"x",` + readsAll + `}`, "Application updated"},
	} {
		other := w.server.Application(t, w.tenant, api.CreateApplication{Type: "private", Rules: []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:read"}}}})
		narrow := w.server.Application(t, w.tenant, private("token:create"))
		w.names["other"], w.names["narrow"] = other.ID, narrow.ID
		holder := w.holder(test.permission)
		if w.reads(holder.Key) || w.reads(narrow.Key) {
			t.Errorf("%s: the value is read before anything was done", name)
		}
		method, path, _ := strings.Cut(w.fill(test.call), " ")
		got := w.server.Call(t, method, path, holder.Key, test.body)
		key, _ := member(decode(t, got.Body), "key").(string)
		if key == "" {
			key = narrow.Key
		}
		if got.Status >= 300 || !w.reads(key) {
			t.Errorf("%s: %s with %s alone = %d, and the value is not read", name, test.call, test.permission, got.Status)
		}
		w.logged(test.message, holder)
	}
	// And everything else that there is to administer.
	holder := w.holder("application:update")
	if got := w.server.Call(t, "PUT", "/applications/"+holder.ID, holder.Key, `{"name":"x","permissions":["application:update","log:read","tenant:delete"]}`); got.Status != 200 {
		t.Errorf("PUT of itself = %s, want 200", got)
	}
	if got := w.server.Call(t, "GET", "/logs", holder.Key, ""); got.Status != 200 {
		t.Errorf("GET /logs = %s, want 200", got)
	}
}

func TestWhoMakesOrChangesProxiesCanHaveValuesSent(t *testing.T) {
	w := newAdministered(t)
	call := func(key, proxyKey string) int {
		t.Helper()
		return w.server.Call(t, "POST", "/proxy", key, `["{{ card-1 | json: '$.number' }}"]`, "SVC-PROXY-KEY", proxyKey).Status
	}
	const sent = `["` + adminCard + `"]`

	maker := w.holder("proxy:create")
	open := func(more string) (p api.Proxy) {
		t.Helper()
		w.server.Call(t, "POST", "/proxies", maker.Key, w.fill(fmt.Sprintf(`{"name":"x","destination_url":%q,"require_auth":false%s}`, w.destination, more))).Into(t, 201, &p)
		return p
	}
	if status := call("", open("").Key); status != 200 || w.received() != sent {
		t.Errorf("an anonymous call of a new proxy = %d, want 200 and the value", status)
	}
	w.logged("Proxy created", maker)

	// Somebody else's proxy: callers go on calling it, and another gets the value.
	var p api.Proxy
	w.server.Call(t, "POST", "/proxies", w.manager.Key, `{"name":"x","destination_url":"https://psp.example.com"}`).Into(t, 201, &p)
	changer := w.holder("proxy:update")
	if got := w.server.Call(t, "PATCH", "/proxies/"+p.ID, changer.Key, fmt.Sprintf(`{"destination_url":%q}`, w.destination)); got.Status != 204 {
		t.Errorf("PATCH = %s, want 204", got)
	}
	if status := call(w.names["server_key"], p.Key); status != 200 || w.received() != sent {
		t.Errorf("a call of a proxy that leads elsewhere = %d, want 200 and the value", status)
	}
	w.logged("Proxy updated", changer)

	// The setting stops proxies without an application, and no others; whoever
	// holds tenant:update lifts it again.
	set := func(key, value string) {
		t.Helper()
		if got := w.server.Call(t, "PUT", "/tenants/self", key, `{"name":"x","settings":{"disable_anonymous_detokenization":"`+value+`"}}`); got.Status != 200 {
			t.Fatalf("PUT /tenants/self = %s", got)
		}
	}
	set(w.manager.Key, "true")
	without := open("")
	if status := call("", without.Key); status != 403 || w.received() != "" {
		t.Errorf("an anonymous call under disable_anonymous_detokenization = %d, want 403", status)
	}
	if status := call("", open(`,"application":{"id":"{server}"}`).Key); status != 200 || w.received() != sent {
		t.Errorf("an anonymous call of a proxy with an application = %d, want 200 and the value", status)
	}
	lifter := w.holder("tenant:update")
	set(lifter.Key, "false")
	if status := call("", without.Key); status != 200 || w.received() != sent {
		t.Errorf("an anonymous call once the setting is lifted = %d, want 200 and the value", status)
	}
	w.logged("Tenant updated", lifter)
}

// TestWhoReadsProxiesCanCallTheOpenOnes: keys and configurations come back to
// proxy:read.
func TestWhoReadsProxiesCanCallTheOpenOnes(t *testing.T) {
	w := newAdministered(t)
	var p, read api.Proxy
	w.server.Call(t, "POST", "/proxies", w.manager.Key, fmt.Sprintf(`{"name":"x","destination_url":%q,"require_auth":false,"configuration":{"SECRET":"of the destination"}}`, w.destination)).Into(t, 201, &p)
	w.server.Call(t, "GET", "/proxies/"+p.ID, w.holder("proxy:read").Key, "").Into(t, 200, &read)
	got := w.server.Call(t, "POST", "/proxy", "", `["{{ card-1 | json: '$.number' }}"]`, "SVC-PROXY-KEY", read.Key)
	if got.Status != 200 || w.received() != `["`+adminCard+`"]` || read.Configuration["SECRET"] != "of the destination" {
		t.Errorf("a call with a key that was read = %s", got)
	}
}

// TestWhoChangesReactorsSeesWhatTheirCallersMayUse, through what code prints,
// through what it sends, and with the rights of an application that the caller
// does not have.
func TestWhoChangesReactorsSeesWhatTheirCallersMayUse(t *testing.T) {
	w := newCoder(t, map[string]string{"allow_http": "true", "allow_networks": "127.0.0.0/8,::1/128"})
	arrived := make(chan string, 10)
	to := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		arrived <- string(b)
	}))
	defer to.Close()
	w.token(`{"id":"card-1","type":"card","data":{"number":"` + adminCard + `"}}`)
	w.token(`{"id":"note-1","type":"token","data":"a note that nobody named"}`)
	holder := w.server.Application(t, w.tenant, api.CreateApplication{Type: "management", Permissions: []string{"reactor:update", "reactor:read"}})
	id := w.reactor(`module.exports = async () => ({})`)
	code := jsonText(`
		module.exports = async ({ args, bt, configuration }) => {
			console.log(args.card.number);
			const note = await bt.tokens.retrieve('note-1');
			await require('node-fetch')(configuration.TO, { method: 'POST', body: args.card.number + ' ' + note.data });
			return {};
		};`)
	patch := fmt.Sprintf(`{"code":%s,"configuration":{"TO":%q},"application_id":"{all}"}`, code, to.URL)
	if got := w.server.Call(t, "PATCH", "/reactors/"+id, holder.Key, w.fill(patch)); got.Status != 204 {
		t.Fatalf("PATCH = %s, want 204", got)
	}
	if got := w.react(id, "user", `{"args":{"card":"{{ card-1 }}"}}`); got.Status != 200 {
		t.Fatalf("react = %s", got)
	}
	if got := <-arrived; got != adminCard+" a note that nobody named" {
		t.Errorf("the destination got %q", got)
	}
	// Another node has written it within a second or so.
	waittest.Until(t, "the runs have what the code printed", func() bool {
		return strings.Contains(w.server.Call(t, "GET", "/reactors/"+id+"/runs", holder.Key, "").Body, adminCard)
	})
}
