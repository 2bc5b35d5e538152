// Package matrix_test calls every row of the API as everybody there is.
package matrix_test

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/clocktest"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// row is what the test knows of a row of the API. A row that is not here, and
// one that is here alone, fail the test.
type row struct {
	holders []access.ApplicationType // of its permission; nil when any key will do
	body    string                   // in which <id> is the id of the target
	served  int                      // the status for who may
	query   string                   // likewise
	absent  int                      // the status for an id of nothing; 404 unless given
}

var (
	anyKey     []access.ApplicationType
	management = []access.ApplicationType{access.Management}
	private    = []access.ApplicationType{access.Private}
	public     = []access.ApplicationType{access.Public}
	tokenMaker = []access.ApplicationType{access.Public, access.Private}
)

var table = map[string]row{
	"GET /tenants/self":                  {management, "", 200, "", 0},
	"PUT /tenants/self":                  {management, `{"name":"New"}`, 200, "", 0},
	"DELETE /tenants/self":               {management, "", 204, "", 0},
	"GET /tenants/self/reports/usage":    {management, "", 200, "", 0},
	"GET /tenants/self/callback-secret":  {management, "", 200, "", 0},
	"POST /tenants/self/callback-secret": {management, "", 200, "", 0},

	"POST /applications":                      {management, `{"name":"New","type":"private","permissions":["token:create"]}`, 201, "", 0},
	"GET /applications":                       {management, "", 200, "", 0},
	"GET /applications/key":                   {anyKey, "", 200, "", 0},
	"GET /applications/{id}":                  {management, "", 200, "", 0},
	"PUT /applications/{id}":                  {management, `{"name":"New","permissions":["token:create"]}`, 200, "", 0},
	"DELETE /applications/{id}":               {management, "", 204, "", 0},
	"POST /applications/{id}/regenerate":      {management, "", 200, "", 0},
	"POST /applications/{id}/keys":            {management, "", 201, "", 0},
	"GET /applications/{id}/keys":             {management, "", 200, "", 0},
	"GET /applications/{id}/keys/{key_id}":    {management, "", 200, "", 0},
	"DELETE /applications/{id}/keys/{key_id}": {management, "", 204, "", 204}, // what is gone is gone

	"POST /sessions":           {public, "", 201, "", 0},
	"POST /sessions/authorize": {private, `{"nonce":"<id>","permissions":["token:create"]}`, 200, "", 0},
	"GET /sessions":            {management, "", 200, "", 0},
	"DELETE /sessions/{id}":    {management, "", 204, "", 0},

	"GET /members/self":          {anyKey, "", 404, "", 0}, // a key is no person
	"GET /members":               {management, "", 200, "", 0},
	"GET /members/{id}":          {management, "", 200, "", 0},
	"GET /members/{id}/sessions": {management, "", 200, "", 0},
	"GET /roles":                 {management, "", 200, "", 0},

	"POST /access/explain":   {management, `{"application_id":"<id>","permission":"log:read"}`, 200, "", 0},
	"GET /access/who":        {management, "", 200, "?permission=token:read&container=/", 0},
	"GET /reports/activity":  {management, "", 200, "?bucket=hour", 0},
	"GET /reports/keys":      {management, "", 200, "", 0},
	"GET /reports/access":    {management, "", 200, "", 0},
	"GET /reports/attention": {management, "", 200, "", 0},
	"GET /permissions":       {anyKey, "", 200, "", 0},

	"POST /tokenize":         {tokenMaker, `["x",{"type":"token","data":1}]`, 200, "", 0},
	"POST /detokenize":       {private, `["{{ <id> }}"]`, 200, "", 400},
	"POST /tokens":           {tokenMaker, `{"type":"token","data":1}`, 201, "", 0},
	"GET /tokens":            {private, "", 200, "?id=<id>", 200},
	"GET /tokens/{id}":       {private, "", 200, "", 0},
	"PATCH /tokens/{id}":     {tokenMaker, `{"data":"y"}`, 200, "", 0},
	"DELETE /tokens/{id}":    {private, "", 204, "", 0},
	"POST /tokens/search":    {private, `{"query":"id:<id>"}`, 200, "", 200},
	"GET /v2/tokens":         {private, "", 200, "?id=<id>", 200},
	"POST /v2/tokens/search": {private, `{"query":"id:<id>"}`, 200, "", 200},

	"POST /exports": {private, `{"recipient":"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}`, 201, "", 0},
	"POST /imports": {tokenMaker, `{"type":"token","data":1}`, 200, "", 0},

	"POST /reactors":                  {management, `{"name":"New","code":"1","configuration":{}}`, 201, "", 0},
	"GET /reactors":                   {management, "", 200, "", 0},
	"GET /reactors/{id}":              {management, "", 200, "", 0},
	"PUT /reactors/{id}":              {management, `{"name":"New","code":"1","configuration":{}}`, 200, "", 0},
	"PATCH /reactors/{id}":            {management, `{"name":"New"}`, 204, "", 0},
	"DELETE /reactors/{id}":           {management, "", 204, "", 0},
	"POST /reactors/{id}/react":       {private, `{}`, 422, "", 0}, // no code runs here
	"POST /reactors/{id}/react-async": {private, `{}`, 202, "", 0},
	// A result is there for the one who asked for it, and that is none of these.
	"GET /reactors/{id}/results/{request_id}": {private, "", 404, "", 0},
	"GET /reactors/{id}/runs":                 {management, "", 200, "", 0},

	"POST /reactors/try":                       {management, `{"code":"1"}`, 422, "", 0}, // no code runs here
	"GET /reactors/{id}/versions":              {management, "", 200, "", 0},
	"POST /reactors/{id}/versions/{n}/restore": {management, "", 200, "", 0},
	"GET /proxies/{id}/versions":               {management, "", 200, "", 0},
	"POST /proxies/{id}/versions/{n}/restore":  {management, "", 200, "", 0},

	"POST /proxies":                 {management, `{"name":"New","destination_url":"https://psp.example.com"}`, 201, "", 0},
	"GET /proxies":                  {management, "", 200, "", 0},
	"GET /proxies/{id}":             {management, "", 200, "", 0},
	"PUT /proxies/{id}":             {management, `{"name":"New","destination_url":"https://psp.example.com"}`, 200, "", 0},
	"PATCH /proxies/{id}":           {management, `{"name":"New"}`, 204, "", 0},
	"DELETE /proxies/{id}":          {management, "", 204, "", 0},
	"POST /proxies/{id}/preview":    {management, `{"path":"/x"}`, 200, "", 0},
	"POST /proxies/{id}/rotate-key": {management, "", 200, "", 0},

	"GET /logs":              {management, "", 200, "", 0},
	"GET /v2/logs":           {management, "", 200, "", 0},
	"GET /v2/logs/stream":    {management, "", 200, "?follow=false", 0},
	"GET /logs/export":       {management, "", 200, "?format=csv", 0},
	"GET /logs/integrity":    {management, "", 200, "", 0},
	"POST /logs/verify":      {management, "", 202, "", 0},
	"GET /logs/verify/{id}":  {management, "", 200, "", 0},
	"GET /names":             {management, "", 200, "?id=<id>", 200},
	"GET /logs/entity-types": {management, "", 200, "", 0},

	"GET /events":                       {management, "", 200, "", 0},
	"POST /webhooks":                    {management, `{"name":"New","url":"https://shop.example.com","events":["webhook.test"]}`, 201, "", 0},
	"GET /webhooks":                     {management, "", 200, "", 0},
	"GET /webhooks/{id}":                {management, "", 200, "", 0},
	"PUT /webhooks/{id}":                {management, `{"name":"New","url":"https://shop.example.com","events":["webhook.test"]}`, 200, "", 0},
	"DELETE /webhooks/{id}":             {management, "", 204, "", 0},
	"POST /webhooks/{id}/secret/rotate": {management, "", 200, "", 0},
	"POST /webhooks/{id}/test":          {management, "", 200, "", 0},
	"GET /webhooks/{id}/deliveries":     {management, "", 200, "", 0},
	"POST /webhooks/{id}/deliveries/{delivery_id}/resend": {management, "", 202, "", 0},
}

// open rows are for everybody, and for the operator's tools.
var open = map[string]int{
	"GET /healthz": 200, "GET /readyz": 200, "GET /metrics": 200,
	"GET /openapi.json": 200, "GET /openapi.yaml": 200, "GET /docs": 200, "GET /docs/{file}": 404,
	"GET /auth/providers": 200, "POST /auth/sign-out": 204,
	"GET /auth/{provider}/start": 404, "GET /auth/{provider}/callback": 404, "POST /auth/{provider}/logout-token": 400,
}

// elsewhere are rows that say themselves who may call, with the test of that.
var elsewhere = map[string]string{
	"GET /":                         "internal/console, TestBrowsersAreLedToTheConsole",
	"GET /console/{rest...}":        "internal/console, TestThePageIsOnlyForItself",
	"* /proxy/{rest...}":            "test/proxy, TestWhoMayCallAProxy",
	"GET /exports/{id}":             "test/moving, TestWhoMayFetchAnExport",
	"GET /exports/{id}/content":     "test/moving, TestWhoMayFetchAnExport",
	"POST /exports/{id}/approve":    "test/moving, TestAnExportIsApprovedByAnotherApplication",
	"POST /auth/link":               "test/people, TestAPersonSignsInAndOut",
	"POST /members":                 "test/people, TestMembersAreManagedWithinOnesOwnRole",
	"PATCH /members/{id}":           "test/people, TestMembersAreManagedWithinOnesOwnRole",
	"DELETE /members/{id}":          "test/people, TestMembersAreManagedWithinOnesOwnRole",
	"DELETE /members/sessions/{id}": "test/people, TestChangesCountFromTheNextRequestOn",
	"POST /roles":                   "test/people, TestMembersAreManagedWithinOnesOwnRole",
	"PUT /roles/{id}":               "test/people, TestMembersAreManagedWithinOnesOwnRole",
	"DELETE /roles/{id}":            "test/people, TestMembersAreManagedWithinOnesOwnRole",
	"POST /tokens/{id}/reveal":      "this package, the operation reveal, and test/people, TestARevealTakesAReason",
	"GET /elements":                 "internal/elements, TestThePlaygroundIsOfDevelopmentMode",
	"GET /elements/v1/{file}":       "internal/elements, TestTheLoaderHasItsHash",
	"GET /elements/v1/{key}/{kind}": "internal/elements, TestWhoGetsAPage",
}

var types = []access.ApplicationType{access.Public, access.Private, access.Management}

// ownKeyOf is the type of application whose own key a row asks for in place of
// a permission; "" when it does not.
func ownKeyOf(r httpapi.Route) access.ApplicationType {
	switch r.Auth {
	case httpapi.PublicKey:
		return access.Public
	case httpapi.PrivateKey:
		return access.Private
	}
	return ""
}

func TestTheTableHasEveryRowAndNoOther(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	routes := k.Routes()
	for _, route := range routes {
		if elsewhere[route.Pattern] != "" {
			continue
		}
		r, known := table[route.Pattern]
		_, isOpen := open[route.Pattern]
		switch {
		case known == isOpen:
			t.Errorf("%s has no row in the table, or two", route.Pattern)
		case isOpen != (route.Auth == httpapi.Anonymous):
			t.Errorf("%s is open: %t", route.Pattern, route.Auth == httpapi.Anonymous)
		case known && (r.body != "") != (route.Body != httpapi.NoBody):
			t.Errorf("%s reads a body: %t", route.Pattern, route.Body != httpapi.NoBody)
		case known && ownKeyOf(route) != "":
			if !slices.Equal(r.holders, []access.ApplicationType{ownKeyOf(route)}) {
				t.Errorf("%s takes the key of a %s application; the table has %v", route.Pattern, ownKeyOf(route), r.holders)
			}
		case known && route.Auth != httpapi.APIKey:
			t.Errorf("%s does not say how its callers are known", route.Pattern)
		case known && route.Permission != 0:
			if p := route.Permission; !slices.Equal(p.ApplicationTypes(), r.holders) {
				t.Errorf("%s takes %s, which %v hold; the table has %v", route.Pattern, p, p.ApplicationTypes(), r.holders)
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
	t       *testing.T
	k       *keeptest.Server
	store   store.Store
	clock   *clocktest.Clock
	route   httpapi.Route
	row     row
	first   api.CreatedTenant
	second  api.CreatedTenant
	witness string // a key that reads the tokens of the first
	targets int    // how many tokens were made
}

// TestAnIDOfOneTenantIsFreeInAnother: whether it is taken elsewhere cannot be
// found out.
func TestAnIDOfOneTenantIsFreeInAnother(t *testing.T) {
	k := keeptest.Start(t, keeptest.Options{})
	for range 2 {
		key := k.Application(t, k.Tenant(t).Tenant.ID, api.CreateApplication{Type: "public", Permissions: []string{"token:create"}}).Key
		if got := k.Call(t, "POST", "/tokens", key, `{"id":"the-same","type":"token","data":1}`); got.Status != 201 {
			t.Errorf("POST /tokens = %s, want 201", got)
		}
		if got := k.Call(t, "POST", "/tokenize", key, `{"id":"the-same","type":"token","data":1}`); got.Status != 409 {
			t.Errorf("POST /tokenize in the same tenant = %s, want 409", got)
		}
	}
}

func TestEveryRowForEveryCaller(t *testing.T) {
	c := clocktest.New(time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC))
	k, opened := startWithStore(t, keeptest.Options{Now: c.Now})
	for i, route := range k.Routes() {
		r, ok := table[route.Pattern]
		if !ok {
			continue // the test of the table tells
		}
		t.Run(route.Pattern, func(t *testing.T) {
			if i%4 > 0 {
				storetest.Long(t)
			}
			s := &square{t: t, k: k, store: opened, clock: c, route: route, row: r, first: k.Tenant(t), second: k.Tenant(t)}
			s.witness = s.holder(s.first.Tenant.ID, access.Private, "token:read").Key
			s.unknownKeys()
			s.withoutThePermission()
			s.otherTenant()
			s.withThePermission()
			s.sessions()
		})
	}
}

// holder makes an application of a type with these permissions.
func (s *square) holder(tenant string, kind access.ApplicationType, permissions ...string) api.Application {
	s.t.Helper()
	return s.k.Application(s.t, tenant, api.CreateApplication{Type: string(kind), Permissions: permissions})
}

// grant is the one permission with which a caller of that type may call the
// row; where the row takes none, one of the type's.
func (s *square) grant(kind access.ApplicationType) string {
	if s.route.Permission == 0 {
		return kind.Permissions()[0].String()
	}
	return s.route.Permission.String()
}

// others are the permissions of a type but for the one that the row takes.
func (s *square) others(kind access.ApplicationType) (names []string) {
	for _, p := range kind.Permissions() {
		if p != s.route.Permission {
			names = append(names, p.String())
		}
	}
	return names
}

// call fills in the ids of a target: a token, or an application and its key.
func (s *square) call(key, target, id string) keeptest.Answer {
	s.t.Helper()
	method, path, _ := strings.Cut(s.route.Pattern, " ")
	fill := strings.NewReplacer("{id}", target, "<id>", target, "{key_id}", id, "{request_id}", id, "{delivery_id}", id, "{n}", "1")
	media := api.MediaJSON
	switch s.route.Body {
	case httpapi.MergePatch:
		media = api.MediaMergePatch
	case httpapi.Lines:
		media = api.MediaNDJSON
	}
	return s.k.Call(s.t, method, fill.Replace(path+s.row.query), key, fill.Replace(s.row.body), "Content-Type", media)
}

// named reports whether the row names a target.
func (s *square) named() bool {
	return strings.Contains(s.route.Pattern, "{") || strings.Contains(s.row.query+s.row.body, "<id>")
}

// absent is the status for a target that is not there.
func (s *square) absent() int { return cmp.Or(s.row.absent, 404) }

// target is an application of a tenant for the row to work on, a proxy or a
// token.
func (s *square) target(tenant string) (target, key string) {
	s.t.Helper()
	if strings.Contains(s.route.Pattern, " /proxies/{id}") {
		var p api.Proxy
		maker := s.holder(tenant, access.Management, "proxy:create").Key
		s.k.Call(s.t, "POST", "/proxies", maker, `{"name":"p","destination_url":"https://psp.example.com","require_auth":false}`).Into(s.t, 201, &p)
		return p.ID, ""
	}
	if strings.Contains(s.route.Pattern, " /webhooks/{id}") {
		var w api.Webhook
		var d api.Delivery
		maker := s.holder(tenant, access.Management, "webhook:create", "webhook:update").Key
		s.k.Call(s.t, "POST", "/webhooks", maker, `{"name":"w","url":"`+hook()+`","events":["webhook.test"]}`).Into(s.t, 201, &w)
		s.k.Call(s.t, "POST", "/webhooks/"+w.ID+"/test", maker, "").Into(s.t, 200, &d)
		return w.ID, d.ID
	}
	if strings.Contains(s.route.Pattern, "/members") {
		s.targets++
		return s.k.Person(s.t, tenant, "auditor", fmt.Sprintf("target-%d@shop.example", s.targets)).ID, ""
	}
	if strings.Contains(s.route.Pattern, "/sessions") {
		made := s.session(tenant)
		if s.route.Body != httpapi.NoBody {
			return made.Nonce, ""
		}
		return s.sessionID(tenant, made), ""
	}
	if strings.Contains(s.route.Pattern, "/logs/verify/") {
		var v api.LogVerification
		s.k.Call(s.t, "POST", "/logs/verify", s.holder(tenant, access.Management, "log:read").Key, "").Into(s.t, 202, &v)
		return v.ID, ""
	}
	if strings.Contains(s.route.Pattern, "/reactors") {
		return s.reactor(tenant)
	}
	a := s.holder(tenant, access.Private, "token:create")
	if !s.onTokens() {
		return a.ID, a.Keys[0].ID
	}
	s.targets++
	id := fmt.Sprint("target-", s.targets) // a UUID may look like a card number, which errors leave out
	if got := s.k.Call(s.t, "POST", "/tokens", a.Key, fmt.Sprintf(`{"id":%q,"type":"token","data":"x"}`, id)); got.Status != 201 {
		s.t.Fatalf("the making of a target = %s", got)
	}
	return id, ""
}

// hook is the address of a receiver that all tests share.
var hook = sync.OnceValue(func() string {
	return httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).URL
})

// reactor makes a reactor, and asks for a run of it.
func (s *square) reactor(tenant string) (id, request string) {
	s.t.Helper()
	var made api.Reactor
	s.k.Call(s.t, "POST", "/reactors", s.holder(tenant, access.Management, "reactor:create").Key, `{"name":"x","code":"1","configuration":{}}`).Into(s.t, 201, &made)
	var run api.AsyncReactor
	s.k.Call(s.t, "POST", "/reactors/"+made.ID+"/react-async", s.holder(tenant, access.Private, "token:use").Key, `{}`).Into(s.t, 202, &run)
	return made.ID, run.AsyncReactorRequestID
}

func (s *square) onTokens() bool { return s.route.Permission.OnTokens() }

func (s *square) want(caller string, got keeptest.Answer, want int) {
	s.t.Helper()
	if got.Status != want {
		s.t.Errorf("%s for %s = %s, want %d", s.route.Pattern, caller, got, want)
	}
	if got.Status >= 400 {
		got.CheckProblem(s.t)
	}
	if got.Status == 204 && got.Body != "" {
		s.t.Errorf("%s for %s = %s, want no body", s.route.Pattern, caller, got)
	}
}

func (s *square) unknownKeys() {
	tenant, kind := s.first.Tenant.ID, access.Private
	if s.row.holders != nil {
		kind = s.row.holders[len(s.row.holders)-1]
	}
	all := append(s.others(kind), s.grant(kind))
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
	s.clock.Advance(2 * time.Minute)
	application, id := s.target(tenant)
	words := map[string]string{
		"": "the API key is missing; send it in the header: SVC-API-KEY", expired.Key: "the application of this API key has expired",
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
			detail = "unknown API key"
		}
		if want := fmt.Sprintf(`{"title":"Unauthorized","status":401,"detail":%q}`, detail); s.problem(got) != want {
			s.t.Errorf("%s for %s = %s, want %s", s.route.Pattern, caller, got.Body, want)
		}
	}
}

// untraced returns a body without its trace id.
func untraced(got keeptest.Answer) string {
	trace := got.Header.Get(api.Header(api.DefaultPrefix, api.TraceID))
	return strings.ReplaceAll(got.Body, trace, "<trace>")
}

// problem returns the body of an error without its code and its trace id, after
// checking that it has both.
func (s *square) problem(got keeptest.Answer) string {
	s.t.Helper()
	got.CheckProblem(s.t)
	var p api.Problem
	if err := json.Unmarshal([]byte(got.Body), &p); err != nil {
		s.t.Errorf("%s = %s: %v", s.route.Pattern, got, err)
	}
	p.Code, p.TraceID = "", ""
	text, err := json.Marshal(p)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func (s *square) withoutThePermission() {
	tenant := s.first.Tenant.ID
	application, id := s.target(tenant)
	refusal := fmt.Sprintf("missing permission %s", s.route.Permission)
	if own := ownKeyOf(s.route); own != "" {
		refusal = fmt.Sprintf("the key must be of a %s application", own)
	}
	for _, kind := range types {
		if s.row.holders == nil || kind == ownKeyOf(s.route) {
			continue // there is nothing to be without
		}
		got := s.call(s.holder(tenant, kind, s.others(kind)...).Key, application, id)
		s.want("a "+string(kind)+" application without the permission", got, 403)
		if want := fmt.Sprintf(`{"title":"Forbidden","status":403,"detail":%q}`, refusal); s.problem(got) != want {
			s.t.Errorf("%s for a %s application = %s, want %s", s.route.Pattern, kind, got.Body, want)
		}
		s.logged("a refused "+string(kind)+" application", got, application, id)
		// What does not exist is no secret that is kept by other words.
		missing := s.call(s.holder(tenant, kind, s.others(kind)...).Key, nothing, nothing)
		if s.problem(missing) != s.problem(got) || missing.Status != got.Status {
			s.t.Errorf("%s of what does not exist = %s, want %s", s.route.Pattern, missing, got)
		}
		s.logged("a refused "+string(kind)+" application, of nothing", missing, "*", "*")
	}
}

// logOf returns a tenant's log as the store has it: to read it by the API makes
// an entry.
func logOf(t *testing.T, s store.Store, tenant string) (list []store.LogEntry) {
	t.Helper()
	if err := s.View(t.Context(), tenant, func(tx store.Tx) (err error) {
		list, err = tx.Logs(t.Context(), store.LogFilter{}, store.Page{Limit: 10_000})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// startWithStore starts a server and returns its store too.
func startWithStore(t *testing.T, o keeptest.Options) (k *keeptest.Server, s store.Store) {
	t.Helper()
	o.Store = func(inner store.Store) store.Store { s = inner; return inner }
	k = keeptest.Start(t, o)
	return k, s
}

// logged fails unless the log has one entry for a refused call, which names
// what stood in its path.
func (s *square) logged(caller string, refused keeptest.Answer, target, id string) {
	s.t.Helper()
	kinds := map[string]string{
		"/tokens/{id}": "token", "/applications/{id}": "application", "/sessions/{id}": "session", "/reactors/{id}": "reactor", "/proxies/{id}": "proxy", "/members/{id}": "member",
		"/webhooks/{id}": "webhook",
	}
	_, path, _ := strings.Cut(s.route.Pattern, " ")
	want := "*"
	for begin, kind := range kinds {
		if strings.HasPrefix(path, begin) {
			want = kind + " " + target
		}
	}
	switch {
	case strings.Contains(path, "{key_id}"):
		want = "key " + id
	case strings.HasPrefix(path, "/tenants/self"), s.route.Permission == access.ReportRead:
		want = "tenant " + s.first.Tenant.ID
	}
	trace := refused.Header.Get(api.Header(api.DefaultPrefix, api.TraceID))
	var found []string
	for _, e := range logOf(s.t, s.store, s.first.Tenant.ID) {
		if e.TraceID == trace && e.Outcome == "denied" {
			found = append(found, e.EntityType+" "+e.EntityID)
		}
	}
	if len(found) != 1 || found[0] != want && (want != "*" || !strings.HasSuffix(found[0], " *")) {
		s.t.Errorf("%s for %s is logged as %q, want one entry for %q", s.route.Pattern, caller, found, want)
	}
}

// nothing is the id of nothing.
const nothing = "b7f1d3a0-aaaa-4aaa-8aaa-aaaaaaaaaaaa"

// otherTenant calls the row with a key of the second tenant and ids of the
// first. What comes back is what comes back for ids of nothing.
func (s *square) otherTenant() {
	kinds := s.row.holders
	if kinds == nil {
		kinds = private
	}
	application, id := s.target(s.first.Tenant.ID)
	before := s.state()
	for _, kind := range kinds {
		key := s.holder(s.second.Tenant.ID, kind, s.grant(kind)).Key
		theirs := s.call(key, application, id)
		if !s.named() {
			s.want("another tenant", theirs, s.row.served)
			if strings.Contains(theirs.Body, s.first.Tenant.ID) {
				s.t.Errorf("%s for another tenant shows the first one: %s", s.route.Pattern, theirs)
			}
			continue
		}
		s.want("another tenant", theirs, s.absent())
		theirs.Body = strings.ReplaceAll(theirs.Body, application, "<id>")
		for name, at := range map[string][2]string{
			"ids of nothing": {nothing, nothing}, "their target and a key of nothing": {application, nothing}, "no ids at all": {"nonsense", "4242424242424242"},
		} {
			got := s.call(key, at[0], at[1])
			got.Body = strings.ReplaceAll(got.Body, at[0], "<id>")
			if got.Status != theirs.Status || untraced(got) != untraced(theirs) || headers(got) != headers(theirs) {
				s.t.Errorf("%s with %s = %s\n%s, and with another tenant's ids = %s\n%s", s.route.Pattern, name, got, headers(got), theirs, headers(theirs))
			}
		}
	}
	if after := s.state(); after != before {
		s.t.Errorf("%s for another tenant changed the first one:\n%s, was\n%s", s.route.Pattern, after, before)
	}
}

// headers are those of an answer that do not differ between any two.
func headers(a keeptest.Answer) string {
	h := a.Header.Clone()
	h.Del("Date")
	h.Del("Content-Length") // the bodies are compared
	h.Del(api.Header(api.DefaultPrefix, api.TraceID))
	return fmt.Sprint(h)
}

// state is what the first tenant's manager and witness see of it.
func (s *square) state() string {
	s.t.Helper()
	var all string
	for _, path := range []string{"/applications?size=100", "/tenants/self", "/tenants/self/reports/usage", "/sessions?size=100", "/reactors?size=100"} {
		all += s.k.Call(s.t, "GET", path, s.first.Application.Key, "").String()
	}
	return all + s.k.Call(s.t, "GET", "/tokens?size=100", s.witness, "").String()
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
			if ownKeyOf(s.route) != "" {
				continue
			}
			body := fmt.Sprintf(`{"name":"x","type":%q,"permissions":[%q]}`, kind, s.route.Permission)
			got := s.k.Call(s.t, "POST", "/applications", s.first.Application.Key, body)
			s.want("the making of a "+string(kind)+" application that holds it", got, 400)
			continue
		}
		key := s.holder(tenant, kind, s.grant(kind)).Key
		application, id := s.target(tenant)
		if s.named() {
			s.want("ids of nothing", s.call(key, nothing, nothing), s.absent())
		}
		s.want("a "+string(kind)+" application with this permission alone", s.call(key, application, id), s.row.served)
	}
}
