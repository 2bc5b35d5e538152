package contract_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/date"
)

// application makes an application in the operator's name. Its id has the name
// given, its key that name with _key.
func (w *walk) application(name, kind, permissions string, rules ...api.Rule) {
	w.t.Helper()
	a := w.server.Application(w.t, w.tenant, api.CreateApplication{Name: name, Type: kind, Permissions: strings.Fields(permissions), Rules: rules})
	w.names[name], w.names[name+"_key"] = a.ID, a.Key
}

// call calls with a named key and wants a status; "" is no key at all.
func (w *walk) call(key, call, body string, status int, headers ...string) string {
	w.t.Helper()
	method, path, _ := strings.Cut(w.fill(call), " ")
	got := w.server.Call(w.t, method, path, w.names[key], w.fill(body), headers...)
	if got.Status != status {
		w.t.Errorf("%s as %s = %s, want %d", call, key, got, status)
	}
	if got.Status >= 400 {
		got.CheckProblem(w.t)
	}
	return got.Body
}

// wait makes a session of the application web: its key and nonce have the name
// given, with _key and _nonce.
func (w *walk) wait(name string) {
	w.t.Helper()
	made := decode(w.t, w.call("web_key", "POST /sessions", "", 201))
	w.names[name+"_key"], w.names[name+"_nonce"] = fmt.Sprint(member(made, "session_key")), fmt.Sprint(member(made, "nonce"))
}

// session makes one that the application server has authorized with a grant,
// such as "permissions":["token:read"].
func (w *walk) session(name, grant string) {
	w.t.Helper()
	w.wait(name)
	w.call("server_key", "POST /sessions/authorize", `{"nonce":"{`+name+`_nonce}",`+grant+`}`, 200)
}

const everything = "token:create token:read token:update token:delete token:search token:use"

// newSessions is a walk with a public and a private application, and two cards.
func newSessions(t *testing.T, permissions string, rules ...api.Rule) *walk {
	t.Helper()
	w := newWalk(t)
	w.furnish(permissions, rules...)
	return w
}

func (w *walk) furnish(permissions string, rules ...api.Rule) {
	w.t.Helper()
	w.application("web", "public", "token:create")
	w.application("server", "private", permissions, rules...)
	w.application("filler", "private", "token:create")
	for _, id := range []string{"card-1", "card-2"} {
		w.call("filler_key", "POST /tokens", `{"id":"`+id+`","type":"card","data":{"number":"4242424242424242"}}`, 201)
	}
}

var revealing = api.Rule{Container: "/", Transform: "reveal", Permissions: []string{"token:read"}}

const clear, masked = `{"number":"4242424242424242"}`, `{"number":"XXXXXXXXXXXX4242"}`

// shows fails unless a key is shown just that of a card.
func (w *walk) shows(key, id, data string) {
	w.t.Helper()
	got := decode(w.t, w.call(key, "GET /tokens/"+id, "", 200))
	if d := compare("data", decode(w.t, data), member(got, "data")); d != "" {
		w.t.Errorf("%s sees of %s: %s", key, id, d)
	}
}

func TestASessionsLife(t *testing.T) {
	w := newSessions(t, "token:create token:read", revealing)
	const (
		made    = `"id":"{session}","tenant_id":"{tenant}","prefix":"<session prefix>","created_by":"{web}","created_at":"2031-05-06T07:08:10.123456+00:00"`
		waiting = `{` + made + `,"permissions":[],"rules":[],"expires_at":"2031-05-06T07:11:10.123456+00:00"}`
		live    = `{` + made + `,"permissions":["token:create"],"rules":[{"priority":1,"transform":"reveal","permissions":["token:read"],` +
			`"conditions":[{"attribute":"id","operator":"equals","value":"card-1"}]}],"authorized_by":"{server}","authorized_at":"2031-05-06T07:08:14.123456+00:00",` +
			`"expires_at":"2031-05-06T07:11:10.123456+00:00"}`
	)
	w.walk(
		step{name: "a public key makes it", call: "POST /sessions", key: "web_key", status: 201, // 10
			want: `{"session_key":"<session>","nonce":"<nonce>","expires_at":"2031-05-06T07:11:10.123456+00:00"}`,
			keep: map[string]string{"session_key": "session_key", "nonce": "nonce"}},
		step{name: "it may do nothing", call: "GET /tokens/card-1", key: "session_key", status: 403, want: problem(403, "the session is not authorized yet")},
		step{name: "nothing at all", call: "GET /permissions", key: "session_key", status: 403, want: problem(403, "the session is not authorized yet")},
	)
	w.names["session"] = fmt.Sprint(member(decode(t, w.call("manager_key", "GET /sessions", "", 200)), "data.0.id"))
	w.walk(
		step{name: "its managers see it, without key and nonce", call: "GET /sessions", status: 200, want: page(1, waiting)},
		step{name: "a private key authorizes it", call: "POST /sessions/authorize", key: "server_key", status: 200, // 14
			body: `{"nonce":"{nonce}","permissions":["token:create"],"rules":[{"transform":"reveal","permissions":["token:read"],"conditions":[{"attribute":"id","operator":"equals","value":"card-1"}]}]}`},
		step{name: "its managers see what it may", call: "GET /sessions", status: 200, want: page(1, live)},
		step{name: "what it makes is its public application's", call: "POST /tokens", key: "session_key", status: 201, body: `{"id":"made","type":"token","data":true}`, // 16
			want:     `{"id":"made","tenant_id":"{tenant}","type":"token","data":"XXXX","fingerprint_expression":"{{ data | stringify }}","containers":["/general/high/"],"created_by":"{web}","created_at":"<time>"}`,
			location: "/tokens/made"},
		step{name: "it is not let at anything else", call: "GET /tokens/card-2", key: "session_key", status: 403, want: problem(403, "missing permission token:read")}, // 17
		step{name: "it makes no sessions", call: "POST /sessions", key: "session_key", status: 403, want: problem(403, "the key must be of a public application")},
	)
	w.shows("session_key", "card-1", clear)
	entries := func(list ...string) string {
		for i, e := range list {
			list[i] = strings.NewReplacer("{manager}", "{web}", `"trace_id"`, `"session_id":"{session}","trace_id"`).Replace(e)
		}
		return page(len(list), list...)
	}
	w.walk( // 19
		step{name: "the log names the session beside the application", call: "GET /logs?entity_id=made", status: 200, want: entries(entry("token", "made", "create", "allowed", "Token created", 16))},
		step{name: "and in what it was refused", call: "GET /logs?entity_id=card-2&start_date=2031-05-06T07:08:17Z", status: 200, want: entries(entry("card", "card-2", "read", "denied", "Token read denied", 17))},
		step{name: "also where nothing is named", call: "GET /logs?entity_type=session&start_date=2031-05-06T07:08:18Z", status: 200, want: entries(entry("session", "*", "create", "denied", "Session create denied", 18))},
		step{call: "GET /logs?entity_id={session}", status: 200, want: page(2,
			strings.Replace(entry("session", "{session}", "update", "allowed", "Session updated by authorization", 14), "{manager}", "{server}", 1),
			strings.Replace(entry("session", "{session}", "create", "allowed", "Session created", 10), "{manager}", "{web}", 1))},
		step{name: "a management key ends it", call: "DELETE /sessions/{session}", status: 204}, // 23
		step{name: "its key is dead", call: "GET /tokens/card-1", key: "session_key", status: 401, want: problem(401, "unknown API key")},
		step{name: "it is gone", call: "DELETE /sessions/{session}", status: 404, want: problem(404, "no such session")},
		step{call: "GET /sessions", status: 200, want: page(0)},
		step{name: "its end is in the log", call: "GET /logs?entity_id={session}&start_date=2031-05-06T07:08:15Z", status: 200,
			want: page(1, entry("session", "{session}", "delete", "allowed", "Session deleted", 23))},
	)
}

func TestASessionIsOverAfterThreeMinutes(t *testing.T) {
	w := newSessions(t, "token:read", revealing)
	w.session("used", `"permissions":["token:read"]`)
	w.wait("waiting")
	w.clock.Advance(3*time.Minute - time.Microsecond)
	w.shows("used_key", "card-1", masked)
	w.call("waiting_key", "GET /tokens/card-1", "", 403)
	w.clock.Advance(time.Microsecond)
	for _, key := range []string{"used_key", "waiting_key"} {
		w.step(step{call: "GET /tokens/card-1", key: key, status: 401, want: problem(401, "the session has expired")})
	}
	w.step(step{name: "its nonce is over too", call: "POST /sessions/authorize", key: "server_key", body: `{"nonce":"{waiting_nonce}","permissions":["token:read"]}`,
		status: 404, want: problem(404, "no session waits for this nonce")})
	w.step(step{call: "GET /sessions", status: 200, want: page(0)})
	w.clock.Advance(time.Second)
	var swept struct{ Sessions int }
	if err := w.server.Operator().Call(t.Context(), "POST", "/sweep", nil, &swept); err != nil || swept.Sessions != 2 {
		t.Errorf("a sweep removed %d sessions, %v, want 2", swept.Sessions, err)
	}
	w.step(step{name: "and is not even known", call: "GET /tokens/card-1", key: "used_key", status: 401, want: problem(401, "unknown API key")})
	gone := decode(t, w.call("manager_key", "GET /logs?entity_type=session&size=2", "", 200))
	for _, i := range []string{"0", "1"} {
		if by, message := member(gone, "data."+i+".actor_type"), member(gone, "data."+i+".message"); by != "system" || message != "Session expired" {
			t.Errorf("the log says %v by %v, want Session expired by system", message, by)
		}
	}
}

func TestTheAuthorizationSetsTheEnd(t *testing.T) {
	w := newSessions(t, "token:read")
	const invalid = "must be in the future and at most 24 hours ahead"
	w.wait("s")
	for at, message := range map[time.Duration]string{
		0: invalid, -time.Hour: invalid, 24*time.Hour + time.Microsecond: invalid,
	} {
		w.step(step{name: at.String(), call: "POST /sessions/authorize", key: "server_key", status: 400, want: refused("expires_at", message),
			body: `{"nonce":"{s_nonce}","permissions":["token:read"],"expires_at":"` + start.Add(at).Format(time.RFC3339Nano) + `"}`})
	}
	w.step(step{name: "no instant", call: "POST /sessions/authorize", key: "server_key", status: 400, want: refused("expires_at", date.Wanted),
		body: `{"nonce":"{s_nonce}","permissions":["token:read"],"expires_at":"tomorrow"}`})
	for name, life := range map[string]time.Duration{"a moment": time.Microsecond, "a minute": time.Minute, "a day": 24 * time.Hour} {
		w.wait(name)
		zone := time.FixedZone("", -7*3600)
		w.call("server_key", "POST /sessions/authorize", `{"nonce":"{`+name+`_nonce}","permissions":["token:read"],"expires_at":"`+w.clock.Now().Add(life).In(zone).Format(time.RFC3339Nano)+`"}`, 200)
		w.clock.Advance(life - time.Microsecond)
		w.shows(name+"_key", "card-1", masked)
		w.clock.Advance(time.Microsecond)
		w.call(name+"_key", "GET /tokens/card-1", "", 401)
	}
}

func TestWhatAuthorizesNoSession(t *testing.T) {
	w := newSessions(t, everything, revealing)
	w.wait("s")
	const rule = `"transform":"mask","permissions":["token:read"]`
	for name, test := range map[string]struct{ grant, want string }{
		"no grant":                   {`"permissions":[],"rules":[]`, refused("permissions", "permissions or rules are required")},
		"null grants":                {`"permissions":null,"rules":null`, refused("permissions", "permissions or rules are required")},
		"a management permission":    {`"permissions":["log:read"]`, refused("permissions", "has a permission that cannot be held here")},
		"no permission":              {`"permissions":["4242424242424242"]`, refused("permissions", unknownPermission)},
		"container and conditions":   {`"rules":[{"container":"/","conditions":[{"attribute":"id","operator":"equals","value":"x"}],` + rule + `}]`, refused("rules.0.conditions", "a rule has a container or conditions, not both")},
		"neither":                    {`"rules":[{` + rule + `}]`, refused("rules.0.container", "a container or conditions are required")},
		"another attribute":          {`"rules":[{"conditions":[{"attribute":"type","operator":"equals","value":"x"}],` + rule + `}]`, refused("rules.0.conditions.0.attribute", "must be id or container")},
		"another operator":           {`"rules":[{"conditions":[{"attribute":"id","operator":"contains","value":"x"}],` + rule + `}]`, refused("rules.0.conditions.0.operator", "must be equals or starts_with")},
		"the beginning of a path":    {`"rules":[{"conditions":[{"attribute":"container","operator":"starts_with","value":"/pci"}],` + rule + `}]`, refused("rules.0.conditions.0.value", "must be a path of letters, digits, - and _ that begins and ends with /")},
		"no value":                   {`"rules":[{"conditions":[{"attribute":"id","operator":"equals"}],` + rule + `}]`, refused("rules.0.conditions.0.value", "must be a token id or the beginning of one")},
		"a management one in a rule": {`"rules":[{"container":"/","transform":"mask","permissions":["log:read"]}]`, refused("rules.0.permissions", "has a permission that cannot be held here")},
		"a priority twice":           {`"rules":[{"container":"/","priority":1,` + rule + `},{"container":"/","priority":1,` + rule + `}]`, refused("rules.1.priority", "must be unique")},
	} {
		w.step(step{name: name, call: "POST /sessions/authorize", key: "server_key", status: 400, body: `{"nonce":"{s_nonce}",` + test.grant + `}`, want: test.want})
	}
	w.step(step{name: "no nonce", call: "POST /sessions/authorize", key: "server_key", status: 400, body: `{"permissions":["token:read"]}`, want: refused("nonce", "is required")})
	w.step(step{name: "none of these used the nonce up", call: "POST /sessions/authorize", key: "server_key", status: 200, body: `{"nonce":"{s_nonce}","permissions":["token:read"]}`})
}

func TestANonceIsUsedOnce(t *testing.T) {
	w := newSessions(t, "token:read")
	elsewhere := w.server.Tenant(t).Tenant.ID
	w.names["stranger_key"] = w.server.Application(t, elsewhere, api.CreateApplication{Type: "private", Permissions: []string{"token:read"}}).Key
	w.names["strange web_key"] = w.server.Application(t, elsewhere, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	w.wait("s")
	unknown := problem(404, "no session waits for this nonce")
	authorize := func(name, key, nonce string, status int, want string) {
		t.Helper()
		w.step(step{name: name, call: "POST /sessions/authorize", key: key, body: `{"nonce":"` + nonce + `","permissions":["token:read"]}`, status: status, want: want})
	}
	authorize("another tenant's", "stranger_key", "{s_nonce}", 404, unknown)
	authorize("nonsense", "server_key", "4242424242424242", 404, unknown)
	authorize("one more character", "server_key", "{s_nonce}1", 404, unknown)
	authorize("a key is no nonce", "server_key", "{s_key}", 404, unknown)
	w.call("s_nonce", "GET /permissions", "", 401) // nor a nonce a key
	authorize("the first time", "server_key", "{s_nonce}", 200, "")
	authorize("the second", "server_key", "{s_nonce}", 409, problem(409, "the nonce was used already"))
	authorize("another tenant's, used", "stranger_key", "{s_nonce}", 404, unknown)
	w.step(step{name: "the second grant is not there", call: "DELETE /tokens/card-1", key: "s_key", status: 403, want: problem(403, "missing permission token:delete")})
}

func TestWhoMakesAndWhoAuthorizes(t *testing.T) {
	w := newSessions(t, everything)
	w.session("s", `"permissions":["token:create"]`)
	w.wait("waiting")
	for _, key := range []string{"server_key", "manager_key", "s_key"} {
		w.step(step{call: "POST /sessions", key: key, status: 403, want: problem(403, "the key must be of a public application")})
	}
	for _, key := range []string{"web_key", "manager_key", "s_key"} {
		w.step(step{call: "POST /sessions/authorize", key: key, body: `{"nonce":"{waiting_nonce}","permissions":["token:create"]}`, status: 403,
			want: problem(403, "the key must be of a private application")})
	}
	w.call("", "POST /sessions", "", 401)
	w.call("web_key", "POST /sessions", "", 201, "Content-Type", "application/x-www-form-urlencoded") // as some clients send it
	w.call("server_key", "POST /sessions/authorize", "nonce=x", 415, "Content-Type", "application/x-www-form-urlencoded")
}

// grants of each kind, and what the application lacks that would give them.
var excesses = map[string]struct{ grant, lacks string }{
	"a permission":            {`"permissions":["token:delete"]`, "does not have token:delete and cannot grant it"},
	"a permission elsewhere":  {`"rules":[{"container":"/bank/","transform":"mask","permissions":["token:read"]}]`, "does not have token:read on a container for which it would be granted"},
	"a container above":       {`"rules":[{"container":"/","transform":"mask","permissions":["token:read"]}]`, "does not have token:read on a container for which it would be granted"},
	"a plain one of a rule's": {`"permissions":["token:read"]`, "does not have token:read on a container for which it would be granted"},
	"a transform":             {`"rules":[{"container":"/pci/","transform":"reveal","permissions":["token:read"]}]`, "has token:read with a lesser transform than would be granted"},
	"a transform by id":       {`"rules":[{"conditions":[{"attribute":"id","operator":"equals","value":"card-1"}],"transform":"reveal","permissions":["token:read"]}]`, "has token:read with a lesser transform than would be granted"},
	"one rule of two":         {`"rules":[{"container":"/pci/","transform":"mask","permissions":["token:read"]},{"container":"/pci/","transform":"mask","permissions":["token:use"]}]`, "does not have token:use and cannot grant it"},
}

func TestASessionIsNotGrantedMoreThanItsMakerHas(t *testing.T) {
	w := newSessions(t, "token:create", api.Rule{Container: "/pci/", Transform: "mask", Permissions: []string{"token:read"}})
	for name, test := range excesses {
		w.wait(name)
		authorize := step{name: name, call: "POST /sessions/authorize", key: "server_key", body: `{"nonce":"{` + name + `_nonce}",` + test.grant + `}`}
		authorize.status, authorize.want = 403, problem(403, "the application "+test.lacks)
		w.step(authorize)
		w.call(name+"_key", "GET /permissions", "", 403)
		authorize.name, authorize.body = name+": less, with the same nonce", `{"nonce":"{`+name+`_nonce}","permissions":["token:create"]}`
		authorize.status, authorize.want = 200, ""
		w.step(authorize)
	}
	w.session("copy", `"permissions":["token:create"],"rules":[{"container":"/pci/","transform":"mask","permissions":["token:read"]}]`)
	w.shows("copy_key", "card-1", masked)
	var log api.List[api.LogEntry]
	w.server.Call(t, "GET", "/logs?entity_type=session&size=100", w.names["manager_key"], "").Into(t, 200, &log)
	made, denied := make(map[string]bool), make(map[string]bool)
	for _, e := range log.Data {
		switch {
		case e.Message == "Session created":
			made[e.EntityID] = true
		case e.Outcome == "denied" && e.ActorID == w.names["server"] && e.Message == "Session update denied" && e.Operation == "update":
			denied[e.EntityID] = true
		}
	}
	for id := range denied {
		if !made[id] {
			t.Errorf("the log has a refusal about %s, which is no session", id)
		}
	}
	if len(denied) != len(excesses) {
		t.Errorf("the log has refusals about %d sessions, want %d", len(denied), len(excesses))
	}
}

func TestATenantCanLiftTheCap(t *testing.T) {
	w := newSessions(t, "token:create")
	const grant = `"rules":[{"container":"/pci/","transform":"reveal","permissions":["token:read"]}]`
	w.wait("s")
	w.call("server_key", "POST /sessions/authorize", `{"nonce":"{s_nonce}",`+grant+`}`, 403)
	w.call("manager_key", "PUT /tenants/self", `{"name":"x","settings":{"uncapped_sessions":"true"}}`, 200)
	w.call("server_key", "POST /sessions/authorize", `{"nonce":"{s_nonce}",`+grant+`}`, 200)
	w.shows("s_key", "card-1", clear)
	w.call("manager_key", "PUT /tenants/self", `{"name":"x"}`, 200)
	w.step(step{name: "the cap is back at once", call: "GET /tokens/card-1", key: "s_key", status: 403, want: problem(403, "missing permission token:read")})
	w.call("manager_key", "PUT /tenants/self", `{"name":"x","settings":{"uncapped_sessions":"true"}}`, 200)
	w.shows("s_key", "card-1", clear)
	w.call("manager_key", "DELETE /applications/{server}", "", 204)
	w.call("s_key", "GET /tokens/card-1", "", 401) // the cap is lifted, and not what ends it
}

func TestASessionLosesWhatItsMakerLoses(t *testing.T) {
	w := newSessions(t, "token:create", revealing)
	w.session("s", `"permissions":["token:create"],"rules":[{"container":"/","transform":"reveal","permissions":["token:read"]}]`)
	w.shows("s_key", "card-1", clear)
	put := func(grant string) {
		t.Helper()
		w.call("manager_key", "PUT /applications/{server}", `{"name":"server",`+grant+`}`, 200)
	}
	put(`"rules":[{"container":"/pci/","transform":"mask","permissions":["token:read"]}]`)
	w.shows("s_key", "card-1", masked)
	w.call("s_key", "POST /tokens", `{"type":"token","data":1}`, 403)
	put(`"rules":[{"container":"/bank/","transform":"reveal","permissions":["token:read"]}]`)
	w.call("s_key", "GET /tokens/card-1", "", 403)
	if total := member(decode(t, w.call("s_key", "GET /tokens", "", 200)), "pagination.total_items"); fmt.Sprint(total) != "0" {
		t.Errorf("the session lists %v tokens that its maker does not see", total)
	}
	put(`"permissions":["token:create"],"rules":[{"container":"/","transform":"reveal","permissions":["token:read"]}],"expires_at":"` + start.Add(time.Minute).Format(time.RFC3339) + `"`)
	w.shows("s_key", "card-1", clear) // it gets back what it was granted, and never more
	w.clock.Advance(time.Minute)
	w.call("s_key", "GET /tokens/card-1", "", 401) // its maker has expired
	put(`"permissions":["token:create"],"rules":[{"container":"/","transform":"reveal","permissions":["token:read"]}]`)
	w.shows("s_key", "card-1", clear)
	w.call("manager_key", "DELETE /applications/{server}", "", 204)
	w.call("s_key", "GET /tokens/card-1", "", 401)
	w.call("s_key", "POST /tokens", `{"type":"token","data":1}`, 401)
}

func TestAPublicApplicationTakesItsSessionsAlong(t *testing.T) {
	w := newSessions(t, "token:read")
	w.session("expired", `"permissions":["token:read"]`)
	w.call("manager_key", "PUT /applications/{web}", `{"name":"web","permissions":["token:create"],"expires_at":"`+start.Add(time.Second).Format(time.RFC3339Nano)+`"}`, 200)
	w.clock.Advance(time.Second)
	w.step(step{call: "GET /tokens/card-1", key: "expired_key", status: 401, want: withoutCreator})
	w.call("manager_key", "PUT /applications/{web}", `{"name":"web","permissions":["token:create"]}`, 200)
	w.shows("expired_key", "card-1", masked)
	w.call("manager_key", "DELETE /applications/{web}", "", 204)
	w.step(step{call: "GET /tokens/card-1", key: "expired_key", status: 401, want: withoutCreator})
}

var (
	withoutCreator    = coded(401, "the key that created this session is no longer valid", "session_revoked")
	withoutAuthorizer = coded(401, "the key that authorized this session is no longer valid", "session_revoked")
)

// Each application has a key of the walk's and one more. A session dies with
// its own keys, in the very next request, and with no other.
func TestASessionDiesWithItsKeys(t *testing.T) {
	for _, uncapped := range []string{"false", "true"} {
		for of, want := range map[string]string{"web": withoutCreator, "server": withoutAuthorizer} {
			for name, end := range map[string]struct {
				call string
				all  bool // the keys of the application end with it
			}{
				"its key is deleted":             {"DELETE /applications/{" + of + "}/keys/{" + of + "_first}", false},
				"its application is regenerated": {"POST /applications/{" + of + "}/regenerate", true},
				"its application is deleted":     {"DELETE /applications/{" + of + "}", true},
			} {
				t.Run(of+", uncapped "+uncapped+", "+name, func(t *testing.T) {
					w := newSessions(t, everything, revealing)
					w.call("manager_key", "PUT /tenants/self", `{"name":"x","settings":{"uncapped_sessions":"`+uncapped+`"}}`, 200)
					const grant = `"permissions":["token:read"]`
					w.session("first", grant)
					w.wait("waiting")
					for _, a := range []string{"web", "server"} {
						w.names[a+"_first"] = fmt.Sprint(member(decode(t, w.call("manager_key", "GET /applications/{"+a+"}", "", 200)), "keys.0.id"))
						second := decode(t, w.call("manager_key", "POST /applications/{"+a+"}/keys", "", 201))
						w.names[a+"_key"], w.names[a+"_second"] = fmt.Sprint(member(second, "key")), fmt.Sprint(member(second, "id"))
					}
					w.session("second", grant)
					w.shows("first_key", "card-1", masked)
					w.shows("second_key", "card-1", masked)
					method, path, _ := strings.Cut(w.fill(end.call), " ")
					if got := w.server.Call(t, method, path, w.names["manager_key"], ""); got.Status >= 300 {
						t.Fatalf("%s = %s", end.call, got)
					}
					live := 3
					dead := func(key string) {
						t.Helper()
						live--
						w.step(step{call: "GET /tokens/card-1", key: key, status: 401, want: want})
						w.step(step{name: "nothing at all", call: "GET /permissions", key: key, status: 401, want: want})
					}
					dead("first_key")
					switch {
					case of == "web":
						dead("waiting_key")
					default:
						w.call("waiting_key", "GET /tokens/card-1", "", 403)
					}
					if end.all {
						dead("second_key")
					} else {
						w.shows("second_key", "card-1", masked)
					}
					if got := member(decode(t, w.call("manager_key", "GET /sessions", "", 200)), "pagination.total_items"); fmt.Sprint(got) != fmt.Sprint(live) {
						t.Errorf("the list has %v sessions, want %d", got, live)
					}
					if of == "web" {
						w.step(step{name: "its nonce is dead", call: "POST /sessions/authorize", key: "server_key", status: 404,
							body: `{"nonce":"{waiting_nonce}",` + grant + `}`, want: problem(404, "no session waits for this nonce")})
					}
				})
			}
		}
	}
}

var foreign = coded(403, "the session was made by another application", "foreign_session")

// A server that knows its page authorizes no session of another page.
func TestAnAuthorizationMayNameTheApplicationThatMadeTheSession(t *testing.T) {
	w := newSessions(t, everything, revealing)
	w.application("other", "public", "token:create")
	const grant = `"permissions":["token:read"]`
	for name, id := range map[string]string{"another public one": "{other}", "a private one": "{server}", "none that exists": "4242424242424242"} {
		w.wait("swapped")
		w.step(step{name: name, call: "POST /sessions/authorize", key: "server_key", status: 403,
			body: `{"nonce":"{swapped_nonce}","application_id":"` + id + `",` + grant + `}`, want: foreign})
		w.call("swapped_key", "GET /tokens/card-1", "", 403)
		w.call("server_key", "POST /sessions/authorize", `{"nonce":"{swapped_nonce}","application_id":"{web}",`+grant+`}`, 200)
		w.shows("swapped_key", "card-1", masked)
	}
	for _, id := range []string{`""`, "null"} {
		w.wait("any")
		w.call("server_key", "POST /sessions/authorize", `{"nonce":"{any_nonce}","application_id":`+id+`,`+grant+`}`, 200)
	}
	if log := w.call("manager_key", "GET /logs?entity_type=session", "", 200); strings.Count(log, `"outcome":"denied"`) < 3 {
		t.Errorf("the log lacks refused authorizations: %s", log)
	}
}

// Fields name their own public key: a page cannot make them use the session of
// another application.
func TestARequestMayNameThePublicKeyOfItsSession(t *testing.T) {
	w := newSessions(t, everything, revealing)
	w.application("other", "public", "token:create")
	w.session("mine", `"permissions":["token:read","token:create"]`)
	stranger := w.server.Tenant(t)
	w.names["stranger_key"] = w.server.Application(t, stranger.Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
	const header = "SVC-PUBLIC-KEY"
	for name, test := range map[string]struct {
		caller, public string
		status         int
	}{
		"its own":                       {"mine_key", "web_key", 200},
		"another application's":         {"mine_key", "other_key", 403},
		"a private key":                 {"mine_key", "server_key", 403},
		"a management key":              {"mine_key", "manager_key", 403},
		"its own key as a session":      {"mine_key", "mine_key", 403},
		"another tenant's":              {"mine_key", "stranger_key", 403},
		"no key at all":                 {"mine_key", "none", 403},
		"a private key as its own":      {"server_key", "server_key", 403},
		"a private caller with a page":  {"server_key", "web_key", 403},
		"a caller that is not known":    {"none", "web_key", 401},
		"a session that waits for more": {"waiting_key", "web_key", 403},
	} {
		if test.caller == "waiting_key" {
			w.wait("waiting")
		}
		w.names["none"] = "4242424242424242"
		body := w.call(test.caller, "GET /tokens/card-1", "", test.status, header, w.names[test.public])
		if test.status == 403 && test.caller != "waiting_key" {
			if d := compare("body", decode(t, foreign), decode(t, body)); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
	}
	// The calls that name another application are in the log, as other refusals are.
	if log := w.call("manager_key", "GET /logs?size=100", "", 200); strings.Count(log, `"outcome":"denied"`) < 8 || !strings.Contains(log, "Token read denied") {
		t.Errorf("the log lacks refused calls: %s", log)
	}
	// So is a call of a proxy, whose row learns late who calls.
	made := decode(t, w.call("manager_key", "POST /proxies", `{"name":"p","destination_url":"https://psp.example.com"}`, 201))
	w.session("user", `"permissions":["token:use"]`)
	got := w.server.Call(t, "POST", "/proxy", w.names["user_key"], "{}", header, w.names["other_key"], "SVC-PROXY-KEY", fmt.Sprint(member(made, "key")))
	if got.Status != 403 || !strings.Contains(got.Body, "another application") {
		t.Errorf("a call of a proxy with the session of another application: %s", got)
	}
	if log := w.call("manager_key", "GET /logs?entity_type=proxy&entity_id="+fmt.Sprint(member(made, "id")), "", 200); strings.Count(log, `"outcome":"denied"`) != 1 {
		t.Errorf("the log lacks the refused call of a proxy: %s", log)
	}
	w.call("web_key", "POST /tokens", `{"type":"token","data":1}`, 201, header, w.names["web_key"])
	w.call("other_key", "POST /tokens", `{"type":"token","data":1}`, 403, header, w.names["web_key"])
	w.call("mine_key", "POST /tokens", `{"type":"token","data":1}`, 403, header, w.names["other_key"])
}

func TestRulesOfSessionsHaveConditions(t *testing.T) {
	w := newSessions(t, "token:create", revealing)
	w.call("filler_key", "POST /tokens", `{"id":"card-x","type":"card","data":{"number":"4242424242424242"},"containers":["/pci/low/"]}`, 201)
	const rules = `"rules":[{"conditions":[{"attribute":"id","operator":"equals","value":"card-1"}],"transform":"reveal","permissions":["token:read"]},` +
		`{"conditions":[{"attribute":"id","operator":"starts_with","value":"card-"},{"attribute":"container","operator":"starts_with","value":"/PCI/high/"}],"transform":"mask","permissions":["token:read"]}]`
	w.session("s", rules)
	w.shows("s_key", "card-1", clear)
	w.shows("s_key", "card-2", masked)
	w.call("s_key", "GET /tokens/card-x", "", 403)
	if total := member(decode(t, w.call("s_key", "GET /tokens", "", 200)), "pagination.total_items"); fmt.Sprint(total) != "2" {
		t.Errorf("the session lists %v tokens, want 2", total)
	}
}

func TestSessionsAreListedByTheirTenantAlone(t *testing.T) {
	w := newSessions(t, "token:read")
	for _, name := range []string{"a", "b", "c"} {
		w.clock.Advance(time.Second)
		w.wait(name)
	}
	var list api.List[api.Session]
	w.server.Call(t, "GET", "/sessions?size=2&page=1", w.names["manager_key"], "").Into(t, 200, &list)
	if p := list.Pagination; p.TotalItems != 3 || p.TotalPages != 2 || len(list.Data) != 2 || !strings.HasPrefix(w.names["c_key"], list.Data[0].Prefix) {
		t.Errorf("the first page is %+v, want the newest two of three", list)
	}
	w.names["theirs"] = list.Data[0].ID
	w.names["stranger_key"] = w.server.Tenant(t).Application.Key
	w.step(step{call: "GET /sessions", key: "stranger_key", status: 200, want: page(0)})
	w.step(step{call: "DELETE /sessions/{theirs}", key: "stranger_key", status: 404, want: problem(404, "no such session")})
	w.step(step{call: "GET /sessions?size=0", status: 400, want: refused("size", "must be a whole number from 1 to 100")})
	w.call("c_key", "GET /tokens", "", 403) // it lives, and waits
}
