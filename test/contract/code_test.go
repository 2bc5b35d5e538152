package contract_test

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/test/runtimetest"
)

func private(permissions ...string) api.CreateApplication {
	return api.CreateApplication{Type: "private", Permissions: permissions}
}

// coder is a walk on a server that runs code. It is made once for many tests,
// as a sandbox takes a while to start.
type coder struct{ *walk }

// newCoder has an application "user" with token:use and token:create, and
// "all", which may do everything with tokens and see them.
func newCoder(t *testing.T, settings map[string]string) *coder {
	t.Helper()
	return newCoderWith(t, keeptest.Options{Settings: settings})
}

func newCoderWith(t *testing.T, o keeptest.Options) *coder {
	t.Helper()
	all := map[string]string{"sandbox.level": "full", "sandbox.runtime": runtimetest.Find(t).Folder, "sandbox.blank": "2"}
	maps.Copy(all, o.Settings)
	c := clocktest.New(start)
	o.Now, o.Settings = c.Now, all
	k := keeptest.Start(t, o)
	made := k.Tenant(t)
	w := &coder{&walk{t: t, server: k, clock: c, tenant: made.Tenant.ID, manager: made.Application, names: map[string]string{
		"tenant": made.Tenant.ID, "manager": made.Application.ID, "manager_key": made.Application.Key, "nothing": "b7f1d3a0-0000-4000-8000-000000000001",
	}}}
	w.application("user", private("token:use", "token:create"))
	everything := private("token:create", "token:update", "token:delete", "token:use")
	everything.Rules = []api.Rule{{Container: "/", Transform: "reveal", Permissions: []string{"token:read", "token:search"}}}
	w.application("all", everything)
	return w
}

// run runs part of a test on the same server.
func (w *coder) run(t *testing.T, name string, test func(t *testing.T, w *coder)) {
	t.Run(name, func(t *testing.T) {
		part := *w.walk
		part.t = t
		test(t, &coder{&part})
	})
}

// application makes an application whose id is {name} and whose key is "name_key".
func (w *coder) application(name string, in api.CreateApplication) {
	w.t.Helper()
	a := w.server.Application(w.t, w.tenant, in)
	w.names[name], w.names[name+"_key"] = a.ID, a.Key
}

// token makes a token with a chosen id.
func (w *coder) token(body string) {
	w.t.Helper()
	if got := w.server.Call(w.t, "POST", "/tokens", w.names["all_key"], body); got.Status != 201 {
		w.t.Fatalf("POST /tokens = %s", got)
	}
}

// reactor makes a reactor of code and returns its id. more are members of the
// request, such as "application".
func (w *coder) reactor(code string, more ...string) string {
	w.t.Helper()
	configuration := `"configuration":{"NAME":"value"}`
	got := w.server.Call(w.t, "POST", "/reactors", w.manager.Key,
		w.fill(fmt.Sprintf(`{"name":"x","code":%s,%s}`, jsonText(code), strings.Join(append(more, configuration), ","))))
	var made api.Reactor
	got.Into(w.t, http.StatusCreated, &made)
	return made.ID
}

// react runs a reactor in the name of an application.
func (w *coder) react(id, who, body string, headers ...string) keeptest.Answer {
	w.t.Helper()
	return w.server.Call(w.t, "POST", "/reactors/"+id+"/react", w.names[who+"_key"], w.fill(body), headers...)
}

// wants compares an answer with a status and a body, member by member.
func (w *coder) wants(name string, got keeptest.Answer, status int, want string) {
	w.t.Helper()
	if got.Status != status {
		w.t.Errorf("%s = %s, want status %d", name, got, status)
		return
	}
	if d := compare("", decode(w.t, w.fill(want)), decode(w.t, got.Body)); d != "" {
		w.t.Errorf("%s: %s\nin %s", name, d, got)
	}
}
