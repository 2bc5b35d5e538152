// Package people_test signs people in and lets them work: what their roles let
// them do, what they cannot get, and when they are out.
package people_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

func TestMain(m *testing.M) { os.Exit(keeptest.Run(m)) }

// fixture is a tenant with an owner and a card.
type fixture struct {
	*keeptest.Server
	t      *testing.T
	clock  *clocktest.Clock
	tenant string
	key    string // of the management application
	owner  keeptest.Person
}

const number = "4242424242424242"

func start(t *testing.T) *fixture {
	t.Helper()
	clock := clocktest.New(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
	f := &fixture{Server: keeptest.Start(t, keeptest.Options{Now: clock.Now}), t: t, clock: clock}
	made := f.Tenant(t)
	f.tenant, f.key = made.Tenant.ID, made.Application.Key
	f.owner = f.Person(t, f.tenant, "owner", "owner@shop.example")
	f.as(f.owner, "POST", "/tokens", `{"id":"card","type":"card","data":{"number":"`+number+`","expiration_month":12,"expiration_year":2040}}`, 201)
	return f
}

func (f *fixture) person(role string) keeptest.Person {
	f.t.Helper()
	return f.Person(f.t, f.tenant, role, role+"@shop.example")
}

// as calls the API as a person, and fails unless the status is the wanted one.
func (f *fixture) as(p keeptest.Person, method, path, body string, want int, headers ...string) keeptest.Answer {
	f.t.Helper()
	got := f.As(f.t, p, method, path, body, headers...)
	if got.Status != want {
		f.t.Errorf("%s %s as %s = %s, want %d", method, path, p.Role, got, want)
	}
	return got
}

// byKey is as with the key of the management application.
func (f *fixture) byKey(method, path, body string, want int) keeptest.Answer {
	f.t.Helper()
	got := f.Call(f.t, method, path, f.key, body)
	if got.Status != want {
		f.t.Errorf("%s %s with a key = %s, want %d", method, path, got, want)
	}
	return got
}

func (f *fixture) self(p keeptest.Person) (self api.MemberSelf) {
	f.t.Helper()
	f.as(p, "GET", "/members/self", "", 200).Into(f.t, 200, &self)
	return self
}

// log returns the entries of the newest page.
func (f *fixture) log() []api.LogEntry {
	f.t.Helper()
	var page api.List[api.LogEntry]
	f.byKey("GET", "/logs?size=100", "", 200).Into(f.t, 200, &page)
	return page.Data
}

// where returns an entry of the log that is the only one of its kind.
func (f *fixture) where(is func(api.LogEntry) bool) (found api.LogEntry) {
	f.t.Helper()
	n := 0
	for _, e := range f.log() {
		if is(e) {
			found = e
			n++
		}
	}
	if n != 1 {
		f.t.Errorf("the log has %d such entries, want one", n)
	}
	return found
}

func TestAPersonSignsInAndOut(t *testing.T) {
	f := start(t)
	code := f.LinkCode(t, f.tenant, "support", "jane@shop.example")
	answer := f.Redeem(t, code)
	var jane keeptest.Person
	answer.Into(t, 200, &jane.Member)
	cookie := answer.Header.Get("Set-Cookie")
	jane.Cookie, _, _ = strings.Cut(cookie, ";")
	for _, want := range []string{"tokenkeep=", "Path=/", "HttpOnly", "SameSite=Strict"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie is %s, want %s in it", strings.ReplaceAll(cookie, jane.Cookie, "…"), want)
		}
	}
	if strings.Contains(cookie, "Domain") {
		t.Error("the cookie has a domain")
	}
	self := f.self(jane)
	if self.Member.Email != "jane@shop.example" || self.Role.Name != "support" || self.Tenant.ID != f.tenant || self.Session.ID == "" || self.Operator {
		t.Errorf("GET /members/self = %+v", self)
	}
	if got := self.Session.ExpiresAt.Sub(self.Session.CreatedAt.Time); got != 8*time.Hour {
		t.Errorf("the session lives %v, want 8h", got)
	}
	if e := f.where(func(e api.LogEntry) bool { return e.Message == "Member signed in" && e.EntityID == jane.ID }); e.ActorType != "user" || e.ActorID != jane.ID || e.ActorName != "jane@shop.example" || e.EntityID != jane.ID || e.SessionID != self.Session.ID {
		t.Errorf("the entry of the sign-in is %+v", e)
	}
	if got := f.Redeem(t, code); got.Status != 401 {
		t.Errorf("the link once more = %s, want 401", got)
	}
	out := f.as(jane, "POST", "/auth/sign-out", "", 204)
	if c := out.Header.Get("Set-Cookie"); !strings.Contains(c, "Max-Age=0") {
		t.Errorf("sign-out sets %q, want the cookie removed", c)
	}
	f.as(jane, "GET", "/members/self", "", 401)
	f.as(jane, "POST", "/auth/sign-out", "", 204)
	if e := f.where(func(e api.LogEntry) bool { return e.Message == "Member signed out" }); e.ActorID != jane.ID {
		t.Errorf("the entry of the sign-out is %+v", e)
	}
}

func TestSessionsEnd(t *testing.T) {
	f := start(t)
	idle, busy := f.person("support"), f.person("auditor")
	for range 40 { // of 12 minutes
		f.clock.Advance(12 * time.Minute)
		if got := f.As(t, busy, "GET", "/members/self", ""); f.clock.Now().Before(busy.CreatedAt.Add(8*time.Hour)) != (got.Status == 200) {
			t.Fatalf("%v after the sign-in, used every 12 minutes = %s", f.clock.Now().Sub(busy.CreatedAt.Time), got)
		}
	}
	f.as(busy, "GET", "/members/self", "", 401)
	f.as(idle, "GET", "/members/self", "", 401)

	again := f.person("support")
	f.clock.Advance(15*time.Minute - time.Second)
	f.as(again, "GET", "/members/self", "", 200)
	f.clock.Advance(15 * time.Minute)
	f.as(again, "GET", "/members/self", "", 401)
}

func TestChangesCountFromTheNextRequestOn(t *testing.T) {
	f := start(t)
	jane := f.person("auditor")
	f.as(jane, "GET", "/logs", "", 200)
	f.as(jane, "GET", "/tokens/card", "", 403)
	f.as(f.owner, "PATCH", "/members/"+jane.ID, `{"role":"support"}`, 200)
	f.as(jane, "GET", "/logs", "", 403)
	f.as(jane, "GET", "/tokens/card", "", 200)

	f.as(f.owner, "PATCH", "/members/"+jane.ID, `{"state":"disabled"}`, 200)
	f.as(jane, "GET", "/tokens/card", "", 401)
	f.as(f.owner, "PATCH", "/members/"+jane.ID, `{"state":"active"}`, 200)
	f.as(jane, "GET", "/tokens/card", "", 401) // the session has ended

	jane = f.person("support")
	var sessions []api.SignIn
	f.as(f.owner, "GET", "/members/"+jane.ID+"/sessions", "", 200).Into(t, 200, &sessions)
	if len(sessions) != 1 {
		t.Fatalf("the member has %d sessions, want 1", len(sessions))
	}
	f.as(f.owner, "DELETE", "/members/sessions/"+sessions[0].ID, "", 204)
	f.as(jane, "GET", "/tokens/card", "", 401)
	f.as(f.owner, "DELETE", "/members/sessions/"+sessions[0].ID, "", 404)

	jane = f.person("support")
	code := f.LinkCode(t, f.tenant, "support", "support@shop.example")
	f.as(f.owner, "DELETE", "/members/"+jane.ID, "", 204)
	f.as(jane, "GET", "/tokens/card", "", 401)
	if got := f.Redeem(t, code); got.Status != 401 {
		t.Errorf("a link of a member who is gone = %s, want 401", got)
	}
}

func TestARevealTakesAReason(t *testing.T) {
	f := start(t)
	if got := f.as(f.owner, "GET", "/tokens/card", "", 200); strings.Contains(got.Body, number) || !strings.Contains(got.Body, "XXXXXXXXXXXX4242") {
		t.Errorf("a read of the owner shows %s, want the mask", got)
	}
	for _, call := range [][2]string{{"GET /tokens", ""}, {"GET /v2/tokens", ""}, {"POST /tokens/search", `{"query":"type:card"}`}, {"POST /detokenize", `["{{ token: card }}"]`}} {
		method, path, _ := strings.Cut(call[0], " ")
		if got := f.as(f.owner, method, path, call[1], 200); strings.Contains(got.Body, number) {
			t.Errorf("%s shows the number without a reason", call[0])
		}
	}
	for name, body := range map[string]string{
		"no reason": `{}`, "an empty reason": `{"reason":""}`, "a blank reason": `{"reason":" \t "}`, "a card number": `{"reason":"it is 4111111111111111"}`,
		"a card number with spaces": `{"reason":"it is 4111 1111 1111 1111."}`, "a card number with dashes": `{"reason":"4111-1111-1111-1111"}`,
		"a line break": `{"reason":"a\nb"}`, "a long reason": `{"reason":"` + strings.Repeat("x", 501) + `"}`,
	} {
		if got := f.As(t, f.owner, "POST", "/tokens/card/reveal", body); got.Status != 400 || strings.Contains(got.Body, "4111") {
			t.Errorf("a reveal with %s = %s, want 400", name, got)
		}
	}
	if got := f.as(f.owner, "POST", "/tokens/card/reveal", `{"reason":" Dispute 1742 "}`, 200); !strings.Contains(got.Body, number) {
		t.Errorf("a reveal with a reason shows %s, want the number", got)
	}
	e := f.where(func(e api.LogEntry) bool { return e.Reason != "" })
	if e.Reason != "Dispute 1742" || e.ActorID != f.owner.ID || e.ActorName != "owner@shop.example" || e.EntityID != "card" || e.Operation != "read" {
		t.Errorf("the entry of the reveal is %+v", e)
	}
	support := f.person("support")
	got := f.as(support, "POST", "/tokens/card/reveal", `{"reason":"curious"}`, 403)
	if !strings.Contains(got.Body, "reveal_denied") || strings.Contains(got.Body, "4242") {
		t.Errorf("a reveal by support = %s", got)
	}
	if e := f.where(func(e api.LogEntry) bool { return e.Outcome == "denied" }); e.EntityID != "card" || e.ActorID != support.ID {
		t.Errorf("the entry of the refused reveal is %+v", e)
	}
	f.as(f.owner, "POST", "/tokens/none/reveal", `{"reason":"x"}`, 404)
}

func TestARuleOfAnApplicationMayRequireAReason(t *testing.T) {
	f := start(t)
	a := f.Application(t, f.tenant, api.CreateApplication{Type: "private", Permissions: []string{"token:use"}, Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:read", "token:search"}, RequiresReason: true},
	}})
	if got := f.Call(t, "GET", "/tokens/card", a.Key, ""); strings.Contains(got.Body, number) || got.Status != 200 {
		t.Errorf("a read = %s, want the mask", got)
	}
	if got := f.Call(t, "POST", "/tokens/card/reveal", a.Key, `{"reason":"a refund"}`); !strings.Contains(got.Body, number) {
		t.Errorf("a reveal = %s, want the number", got)
	}
	if got := f.Call(t, "PATCH", "/tokens/card", a.Key, `{"mask":null}`); got.Status != 403 {
		t.Errorf("a change of the mask = %s, want 403", got)
	}
	session := map[string]string{}
	public := f.Application(t, f.tenant, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}})
	f.Call(t, "POST", "/sessions", public.Key, "").Into(t, 201, &session)
	if got := f.Call(t, "POST", "/sessions/authorize", a.Key, `{"nonce":"`+session["nonce"]+`","rules":[{"container":"/","transform":"reveal","permissions":["token:read"]}]}`); got.Status != 403 {
		t.Errorf("a session that reveals without a reason = %s, want 403", got)
	}
}

func TestAKeyWinsOverACookie(t *testing.T) {
	f := start(t)
	got := f.as(f.owner, "GET", "/applications/key", "", 200, "SVC-API-KEY", f.key)
	if !strings.Contains(got.Body, `"type":"management"`) {
		t.Errorf("with both, the caller is %s", got)
	}
	f.as(f.owner, "GET", "/members/self", "", 401, "SVC-API-KEY", "garbage")
	f.as(f.owner, "GET", "/members/self", "", 404, "SVC-API-KEY", f.key)
}

func TestMembersAreManagedWithinOnesOwnRole(t *testing.T) {
	f := start(t)
	admin, auditor := f.person("admin"), f.person("auditor")
	for _, test := range []struct {
		name, method, path, body string
		as                       keeptest.Person
		want                     int
	}{
		{"an auditor adds nobody", "POST", "/members", `{"email":"a@shop.example","name":"A","role":"auditor"}`, auditor, 403},
		{"an admin adds an auditor", "POST", "/members", `{"email":"b@shop.example","name":"B","role":"auditor"}`, admin, 201},
		{"an admin adds no owner", "POST", "/members", `{"email":"c@shop.example","name":"C","role":"owner"}`, admin, 403},
		{"an admin adds nobody who sees masks", "POST", "/members", `{"email":"c@shop.example","name":"C","role":"support"}`, admin, 403},
		{"an admin becomes no owner", "PATCH", "/members/" + admin.ID, `{"role":"owner"}`, admin, 403},
		{"an admin changes no owner", "PATCH", "/members/" + f.owner.ID, `{"role":"auditor"}`, admin, 403},
		{"an admin removes no owner", "DELETE", "/members/" + f.owner.ID, ``, admin, 403},
		{"the last owner stays one", "PATCH", "/members/" + f.owner.ID, `{"role":"admin"}`, f.owner, 409},
		{"the last owner stays active", "PATCH", "/members/" + f.owner.ID, `{"state":"disabled"}`, f.owner, 409},
		{"the last owner stays", "DELETE", "/members/" + f.owner.ID, ``, f.owner, 409},
		{"an email is somebody's", "POST", "/members", `{"email":"B@shop.example ","name":"B","role":"auditor"}`, f.owner, 409},
		{"a role is one that there is", "POST", "/members", `{"email":"d@shop.example","name":"D","role":"king"}`, f.owner, 400},
		{"a name is no card number", "POST", "/members", `{"email":"d@shop.example","name":"4242 4242 4242 4242","role":"admin"}`, f.owner, 400},
		{"an email is one", "POST", "/members", `{"email":"d","name":"D","role":"admin"}`, f.owner, 400},
		{"a state is one", "PATCH", "/members/" + auditor.ID, `{"state":"asleep"}`, f.owner, 400},
		{"an admin makes no role that reads tokens", "POST", "/roles", `{"name":"reader","permissions":["token:read"]}`, admin, 403},
		{"an admin makes a lesser role", "POST", "/roles", `{"name":"keys","permissions":["application:read"]}`, admin, 201},
		{"an admin does not widen it", "PUT", "/roles/keys", `{"permissions":["tenant:delete"]}`, admin, 403},
		{"built-in roles stay", "PUT", "/roles/auditor", `{"permissions":["log:read"]}`, f.owner, 409},
		{"built-in roles are not made", "POST", "/roles", `{"name":"owner","permissions":["log:read"]}`, f.owner, 409},
		{"an owner makes a role that reveals", "POST", "/roles", `{"name":"disputes","rules":[{"container":"/pci/","transform":"reveal","permissions":["token:read"],"requires_reason":true}]}`, f.owner, 201},
		{"an admin does not change a role above its own", "PUT", "/roles/disputes", `{"permissions":["log:read"]}`, admin, 403},
		{"an admin does not delete a role above its own", "DELETE", "/roles/disputes", ``, admin, 403},
		{"an admin does not give a role above its own", "PATCH", "/members/" + auditor.ID, `{"role":"disputes"}`, admin, 403},
		{"an owner gives it", "PATCH", "/members/" + auditor.ID, `{"role":"disputes"}`, f.owner, 200},
		{"a role that somebody has stays", "DELETE", "/roles/disputes", ``, f.owner, 409},
	} {
		if got := f.As(t, test.as, test.method, test.path, test.body); got.Status != test.want {
			t.Errorf("%s: %s %s = %s, want %d", test.name, test.method, test.path, got, test.want)
		}
	}
	if got := f.as(auditor, "POST", "/tokens/card/reveal", `{"reason":"dispute"}`, 200); !strings.Contains(got.Body, number) {
		t.Errorf("the role of the tenant reveals %s", got)
	}
	f.as(auditor, "POST", "/tokens", `{"type":"token","data":1}`, 403)
}

// TestAMemberGetsNoMoreThroughOthers: applications, reactors and proxies are
// within what the member's own role may do with tokens.
func TestAMemberGetsNoMoreThroughOthers(t *testing.T) {
	f := start(t)
	admin, developer := f.person("admin"), f.person("developer")
	reveals := `"rules":[{"container":"/","transform":"reveal","permissions":["token:read"]}]`
	powerful := f.Application(t, f.tenant, api.CreateApplication{Name: "shop", Type: "private", Permissions: []string{"token:use"}, Rules: []api.Rule{
		{Container: "/", Transform: "reveal", Permissions: []string{"token:read"}},
	}})
	harmless := f.Application(t, f.tenant, api.CreateApplication{Name: "logs", Type: "management", Permissions: []string{"log:read"}})
	var reactor api.Reactor
	f.byKey("POST", "/reactors", `{"name":"r","code":"1","configuration":{},"application_id":"`+powerful.ID+`"}`, 201).Into(t, 201, &reactor)
	f.byKey("POST", "/roles", `{"name":"tester","description":"tries code","permissions":["reactor:read","reactor:update","token:use"]}`, 201)
	tester := f.person("tester")
	if got := f.As(t, tester, "POST", "/reactors/try", `{"code":"1","application_id":"`+powerful.ID+`"}`); !strings.Contains(got.Body, "exceeds_role") {
		t.Errorf("a trial as an application that may do more than the member = %s, want exceeds_role", got)
	}
	for _, test := range []struct {
		name, method, path, body string
		as                       keeptest.Person
		want                     int
	}{
		{"an application that reveals", "POST", "/applications", `{"name":"x","type":"private",` + reveals + `}`, admin, 403},
		{"an application that reads masks", "POST", "/applications", `{"name":"x","type":"private","permissions":["token:read"]}`, admin, 403},
		{"an application that uses tokens", "POST", "/applications", `{"name":"x","type":"private","permissions":["token:use"]}`, admin, 403},
		{"an application that makes tokens", "POST", "/applications", `{"name":"x","type":"public","permissions":["token:create"]}`, admin, 403},
		{"an application that makes applications", "POST", "/applications", `{"name":"x","type":"management","permissions":["application:create"]}`, admin, 403},
		{"an application that changes applications", "POST", "/applications", `{"name":"x","type":"management","permissions":["application:update"]}`, admin, 403},
		{"an application that makes members", "POST", "/applications", `{"name":"x","type":"management","permissions":["member:create"]}`, admin, 403},
		{"an application that writes code", "POST", "/applications", `{"name":"x","type":"management","permissions":["reactor:update"]}`, admin, 403},
		{"an application that deletes the tenant", "POST", "/applications", `{"name":"x","type":"management","permissions":["tenant:delete"]}`, admin, 403},
		{"an application that reads the log", "POST", "/applications", `{"name":"x","type":"management","permissions":["log:read"]}`, admin, 201},
		{"a key of an application that reveals", "POST", "/applications/" + powerful.ID + "/keys", ``, admin, 403},
		{"a new key of an application that reveals", "POST", "/applications/" + powerful.ID + "/regenerate", ``, admin, 403},
		{"a key of an application that reads the log", "POST", "/applications/" + harmless.ID + "/keys", ``, admin, 201},
		{"more for an application", "PUT", "/applications/" + harmless.ID, `{"name":"x","permissions":["log:read","application:create"]}`, admin, 403},
		{"another name", "PUT", "/applications/" + powerful.ID, `{"name":"shop 2","permissions":["token:use"],` + reveals + `}`, admin, 200},
		{"less for an application", "PUT", "/applications/" + powerful.ID, `{"name":"shop","permissions":["token:use"]}`, admin, 200},
		{"what it had before", "PUT", "/applications/" + powerful.ID, `{"name":"shop","permissions":["token:use"],` + reveals + `}`, admin, 403},
		{"the same, by an owner", "PUT", "/applications/" + powerful.ID, `{"name":"shop","permissions":["token:use"],` + reveals + `}`, f.owner, 200},
		{"code for an application that reveals", "POST", "/reactors", `{"name":"x","code":"1","configuration":{},"application_id":"` + powerful.ID + `"}`, developer, 403},
		{"other code for such an application", "PATCH", "/reactors/" + reactor.ID, `{"code":"2"}`, developer, 403},
		{"code for nobody", "POST", "/reactors", `{"name":"x","code":"1","configuration":{}}`, developer, 201},
		{"a trial as an application that reveals", "POST", "/reactors/try", `{"code":"1","application_id":"` + powerful.ID + `"}`, tester, 403},
		{"a restored version for such an application", "POST", "/reactors/" + reactor.ID + "/versions/1/restore", ``, developer, 403},
		{"a proxy for an application that reveals", "POST", "/proxies", `{"name":"x","destination_url":"https://psp.example.com","application_id":"` + powerful.ID + `"}`, developer, 403},
		{"a proxy that asks for no key", "POST", "/proxies", `{"name":"x","destination_url":"https://psp.example.com","require_auth":false}`, developer, 403},
		{"a proxy that asks for a key", "POST", "/proxies", `{"name":"x","destination_url":"https://psp.example.com"}`, developer, 201},
		{"a proxy that asks for no key, by an owner", "POST", "/proxies", `{"name":"x","destination_url":"https://psp.example.com","require_auth":false}`, f.owner, 201},
		{"a setting that shows more", "PUT", "/tenants/self", `{"name":"T","settings":{"masked_fingerprints":"true"}}`, admin, 403},
		{"a setting that shows no more", "PUT", "/tenants/self", `{"name":"T","settings":{"disable_anonymous_detokenization":"true"}}`, admin, 200},
		{"that setting taken back", "PUT", "/tenants/self", `{"name":"T","settings":{}}`, admin, 403},
		{"that setting taken back by an owner", "PUT", "/tenants/self", `{"name":"T","settings":{}}`, f.owner, 200},
		{"exports that take an approval", "PUT", "/tenants/self", `{"name":"T","settings":{"export_approval":"true"}}`, admin, 200},
		{"exports that take none", "PUT", "/tenants/self", `{"name":"T","settings":{}}`, admin, 403},
		{"a session of an application", "POST", "/sessions", ``, f.owner, 401},
	} {
		if got := f.As(t, test.as, test.method, test.path, test.body); got.Status != test.want {
			t.Errorf("%s: %s %s = %s, want %d", test.name, test.method, test.path, got, test.want)
		}
	}
}
