// Package matrix_test calls every row of the API as everybody there is.
package matrix_test

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
)

// row is what the test knows of a row of the API. A row that is not here, and
// one that is here alone, fail the test.
type row struct {
	holders []access.ApplicationType // of its permission; nil when any key will do
	body    string
	served  int // the status for who may
}

var (
	anyKey     []access.ApplicationType
	management = []access.ApplicationType{access.Management}
)

var table = map[string]row{
	"GET /tenants/self":                  {management, "", 200},
	"PUT /tenants/self":                  {management, `{"name":"New"}`, 200},
	"DELETE /tenants/self":               {management, "", 204},
	"GET /tenants/self/reports/usage":    {management, "", 200},
	"GET /tenants/self/callback-secret":  {management, "", 200},
	"POST /tenants/self/callback-secret": {management, "", 200},

	"POST /applications":                      {management, `{"name":"New","type":"private","permissions":["token:create"]}`, 201},
	"GET /applications":                       {management, "", 200},
	"GET /applications/key":                   {anyKey, "", 200},
	"GET /applications/{id}":                  {management, "", 200},
	"PUT /applications/{id}":                  {management, `{"name":"New","permissions":["token:create"]}`, 200},
	"DELETE /applications/{id}":               {management, "", 204},
	"POST /applications/{id}/regenerate":      {management, "", 200},
	"POST /applications/{id}/keys":            {management, "", 201},
	"GET /applications/{id}/keys":             {management, "", 200},
	"GET /applications/{id}/keys/{key_id}":    {management, "", 200},
	"DELETE /applications/{id}/keys/{key_id}": {management, "", 204},

	"GET /permissions": {anyKey, "", 200},

	"GET /logs":              {management, "", 200},
	"GET /logs/entity-types": {management, "", 200},
}

// open rows are for everybody, and for the operator's tools.
var open = map[string]int{"GET /healthz": 200, "GET /readyz": 200, "GET /metrics": 200}

var types = []access.ApplicationType{access.Public, access.Private, access.Management}

// clock is moved by hand, so that an application expires in time.
type clock struct {
	mu  sync.Mutex // guards now
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestTheTableHasEveryRowAndNoOther(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	routes := k.Routes()
	for _, route := range routes {
		r, known := table[route.Pattern]
		_, isOpen := open[route.Pattern]
		switch {
		case known == isOpen:
			t.Errorf("%s has no row in the table, or two", route.Pattern)
		case isOpen != (route.Who == httpapi.Open):
			t.Errorf("%s is open: %t", route.Pattern, route.Who == httpapi.Open)
		case known && (r.body != "") != (route.Body == httpapi.JSON):
			t.Errorf("%s reads a body: %t", route.Pattern, route.Body == httpapi.JSON)
		case known && route.Permission != "":
			p, ok := access.ParsePermission(route.Permission)
			if !ok || !slices.Equal(p.ApplicationTypes(), r.holders) {
				t.Errorf("%s takes %s, which %v hold; the table has %v", route.Pattern, route.Permission, p.ApplicationTypes(), r.holders)
			}
		case known && r.holders != nil:
			t.Errorf("%s takes no permission, and the table has %v", route.Pattern, r.holders)
		}
	}
	for pattern := range table {
		if !slices.ContainsFunc(routes, func(r httpapi.Route) bool { return r.Pattern == pattern }) {
			t.Errorf("%s is in the table and not in the API", pattern)
		}
	}
}

func TestOpenRowsAskForNothing(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	for pattern, want := range open {
		method, path, _ := strings.Cut(pattern, " ")
		for _, key := range []string{"", "garbage"} {
			if got := k.Call(t, method, path, key, ""); got.Status != want {
				t.Errorf("%s with the key %q = %d, want %d", pattern, key, got.Status, want)
			}
		}
	}
}

// square is one row of the API on two tenants of its own.
type square struct {
	t          *testing.T
	k          *keeptest.Server
	clock      *clock
	pattern    string
	permission string
	row        row
	first      api.CreatedTenant
	second     api.CreatedTenant
}

func TestEveryRowForEveryCaller(t *testing.T) {
	c := &clock{now: time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)}
	k := keeptest.Start(t, keeptest.Options{Now: c.Now})
	for _, route := range k.Routes() {
		r, ok := table[route.Pattern]
		if !ok {
			continue // the test of the table tells
		}
		t.Run(route.Pattern, func(t *testing.T) {
			s := &square{t, k, c, route.Pattern, route.Permission, r, k.Tenant(t), k.Tenant(t)}
			s.unknownKeys()
			s.withoutThePermission()
			s.otherTenant()
			s.withThePermission()
		})
	}
}

// holder makes an application of a type with these permissions.
func (s *square) holder(tenant string, kind access.ApplicationType, permissions ...string) api.Application {
	s.t.Helper()
	return s.k.Application(s.t, tenant, api.CreateApplication{Type: string(kind), Permissions: permissions})
}

// others are the permissions of a type but for the one that the row takes.
func (s *square) others(kind access.ApplicationType) (names []string) {
	for _, p := range kind.Permissions() {
		if p.String() != s.permission {
			names = append(names, p.String())
		}
	}
	return names
}

// call calls the row with a key, on an application and one of its keys.
func (s *square) call(key, application, id string) keeptest.Answer {
	s.t.Helper()
	method, path, _ := strings.Cut(s.pattern, " ")
	path = strings.NewReplacer("{id}", application, "{key_id}", id).Replace(path)
	return s.k.Call(s.t, method, path, key, s.row.body)
}

// target is an application of a tenant for the row to work on.
func (s *square) target(tenant string) (application, key string) {
	s.t.Helper()
	a := s.holder(tenant, access.Private, "token:create")
	return a.ID, a.Keys[0].ID
}

func (s *square) want(caller string, got keeptest.Answer, want int) {
	s.t.Helper()
	if got.Status != want {
		s.t.Errorf("%s for %s = %s, want %d", s.pattern, caller, got, want)
	}
	if got.Status >= 400 {
		got.CheckProblem(s.t)
	}
	if got.Status == 204 && got.Body != "" {
		s.t.Errorf("%s for %s = %s, want no body", s.pattern, caller, got)
	}
}

func (s *square) unknownKeys() {
	tenant, kind := s.first.Tenant.ID, access.Management
	if s.row.holders == nil {
		kind = access.Private
	}
	all := append(s.others(kind), s.permission)
	all = slices.DeleteFunc(all, func(name string) bool { return name == "" })
	unknown := func(tenant string, kind access.KeyKind) string {
		key, err := access.NewKey(rand.Reader, "test", kind, tenant)
		if err != nil {
			s.t.Fatal(err)
		}
		return key.Text().Reveal()
	}
	expired := s.k.Application(s.t, tenant, api.CreateApplication{Type: string(kind), Permissions: all, ExpiresAt: api.Time{Time: s.clock.Now().Add(time.Minute)}})
	revoked, deleted, regenerated := s.holder(tenant, kind, all...), s.holder(tenant, kind, all...), s.holder(tenant, kind, all...)
	for _, call := range [][2]string{
		{"DELETE", "/applications/" + revoked.ID + "/keys/" + revoked.Keys[0].ID}, {"DELETE", "/applications/" + deleted.ID},
		{"POST", "/applications/" + regenerated.ID + "/regenerate"},
	} {
		if got := s.k.Call(s.t, call[0], call[1], s.first.Application.Key, ""); got.Status >= 300 {
			s.t.Fatalf("%v = %s", call, got)
		}
	}
	s.clock.advance(2 * time.Minute)
	application, id := s.target(tenant)
	words := map[string]string{
		"": "an API key is required", expired.Key: "the application of this API key has expired",
	}
	for caller, key := range map[string]string{
		"no key": "", "garbage": "garbage", "the id of a key": revoked.Keys[0].ID,
		"an unknown key": unknown(tenant, kind.KeyKind()), "an unknown session": unknown(tenant, access.SessionKey),
		"a key of no tenant": unknown(nothing, kind.KeyKind()), "a proxy's key": unknown(tenant, access.ProxyKey),
		"an expired application": expired.Key, "a revoked key": revoked.Key, "a deleted application": deleted.Key, "a replaced key": regenerated.Key,
	} {
		got := s.call(key, application, id)
		s.want(caller, got, 401)
		detail := words[key]
		if detail == "" {
			detail = "the API key is not known"
		}
		if want := fmt.Sprintf(`{"title":"Unauthorized","status":401,"detail":%q}`, detail); got.Body != want {
			s.t.Errorf("%s for %s = %s, want %s", s.pattern, caller, got.Body, want)
		}
	}
}

func (s *square) withoutThePermission() {
	tenant := s.first.Tenant.ID
	application, id := s.target(tenant)
	for _, kind := range types {
		if s.row.holders == nil {
			continue // there is none to be without
		}
		got := s.call(s.holder(tenant, kind, s.others(kind)...).Key, application, id)
		s.want("a "+string(kind)+" application without the permission", got, 403)
		if want := fmt.Sprintf(`{"title":"Forbidden","status":403,"detail":"this takes %s, which the caller does not have"}`, s.permission); got.Body != want {
			s.t.Errorf("%s for a %s application = %s, want %s", s.pattern, kind, got.Body, want)
		}
		// What does not exist is no secret that is kept by other words.
		if missing := s.call(s.holder(tenant, kind, s.others(kind)...).Key, nothing, nothing); missing.Body != got.Body || missing.Status != got.Status {
			s.t.Errorf("%s of what does not exist = %s, want %s", s.pattern, missing, got)
		}
	}
}

// nothing is the id of nothing.
const nothing = "b7f1d3a0-0000-4000-8000-000000000001"

// otherTenant calls the row with a key of the second tenant and ids of the
// first. What comes back is what comes back for ids of nothing.
func (s *square) otherTenant() {
	kinds, permission := s.row.holders, []string{s.permission}
	if kinds == nil {
		kinds, permission = []access.ApplicationType{access.Private}, []string{"token:create"}
	}
	application, id := s.target(s.first.Tenant.ID)
	before := s.state(s.first)
	for _, kind := range kinds {
		key := s.holder(s.second.Tenant.ID, kind, permission...).Key
		theirs := s.call(key, application, id)
		if !strings.Contains(s.pattern, "{") {
			s.want("another tenant", theirs, s.row.served)
			if strings.Contains(theirs.Body, s.first.Tenant.ID) {
				s.t.Errorf("%s for another tenant shows the first one: %s", s.pattern, theirs)
			}
			continue
		}
		s.want("another tenant", theirs, 404)
		for name, at := range map[string][2]string{
			"ids of nothing": {nothing, nothing}, "their application and a key of nothing": {application, nothing}, "no ids at all": {"x", "4242424242424242"},
		} {
			got := s.call(key, at[0], at[1])
			if got.Status != theirs.Status || got.Body != theirs.Body || headers(got) != headers(theirs) {
				s.t.Errorf("%s with %s = %s\n%s, and with another tenant's ids = %s\n%s", s.pattern, name, got, headers(got), theirs, headers(theirs))
			}
		}
	}
	if after := s.state(s.first); after != before {
		s.t.Errorf("%s for another tenant changed the first one:\n%s, was\n%s", s.pattern, after, before)
	}
}

// headers are those of an answer that do not differ between any two.
func headers(a keeptest.Answer) string {
	h := a.Header.Clone()
	h.Del("Date")
	h.Del(api.Header(api.DefaultPrefix, api.TraceID))
	return fmt.Sprint(h)
}

// state is what a tenant's manager sees of it.
func (s *square) state(t api.CreatedTenant) string {
	s.t.Helper()
	return s.k.Call(s.t, "GET", "/applications?size=100", t.Application.Key, "").String() + s.k.Call(s.t, "GET", "/tenants/self", t.Application.Key, "").String()
}

func (s *square) withThePermission() {
	tenant := s.first.Tenant.ID
	for _, kind := range types {
		if s.row.holders == nil {
			application, id := s.target(tenant)
			got := s.call(s.holder(tenant, kind, kind.Permissions()[0].String()).Key, application, id)
			s.want("a "+string(kind)+" application", got, s.row.served)
			continue
		}
		if !slices.Contains(s.row.holders, kind) {
			body := fmt.Sprintf(`{"name":"x","type":%q,"permissions":[%q]}`, kind, s.permission)
			got := s.k.Call(s.t, "POST", "/applications", s.first.Application.Key, body)
			s.want("the making of a "+string(kind)+" application that holds it", got, 400)
			continue
		}
		key := s.holder(tenant, kind, s.permission).Key
		application, id := s.target(tenant)
		if strings.Contains(s.pattern, "{") {
			s.want("ids of nothing", s.call(key, nothing, nothing), 404)
		}
		s.want("a "+string(kind)+" application with this permission alone", s.call(key, application, id), s.row.served)
	}
}
