package openapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/console"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/elements"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/keeptest"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/internal/token"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

// vault is a server with the demo tenant, and a watch on what goes there.
type vault struct {
	*keeptest.Server
	keys  server.DevKeys
	watch *openapitest.Watch
}

func start(t *testing.T, settings map[string]string) *vault {
	t.Helper()
	return startWith(t, keeptest.Options{Settings: settings})
}

func startWith(t *testing.T, o keeptest.Options) *vault {
	t.Helper()
	k := keeptest.Start(t, o)
	keys, _, err := k.Demo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &vault{k, keys, k.Client.Transport.(*openapitest.Watch)}
}

func (v *vault) client(t *testing.T, key string) *client.Client {
	t.Helper()
	c, err := client.New(v.URL, client.WithKey(key), client.WithHTTPClient(&http.Client{Transport: v.watch}), client.WithRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// send sends what no client would, and returns the status.
func (v *vault) send(t *testing.T, method, target, body string, header ...string) int {
	t.Helper()
	return v.sendInto(t, new(any), method, target, body, header...)
}

// sendInto also reads what came back, if it is JSON.
func (v *vault) sendInto(t *testing.T, out any, method, target, body string, header ...string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, v.URL+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("SVC-API-KEY", v.keys.ManagementKey)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := v.watch.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	_ = json.NewDecoder(resp.Body).Decode(out)
	return resp.StatusCode
}

// taken is what the document writes of what a row takes of its callers.
func taken(r httpapi.Route) string {
	switch r.Auth {
	case httpapi.PublicKey:
		return "(public application key)"
	case httpapi.PrivateKey:
		return "(private application key)"
	}
	return r.Permission.String()
}

func TestTheDocumentHasTheRowsOfTheServerAndNoOthers(t *testing.T) {
	var want, got []openapitest.Operation
	for _, r := range start(t, nil).Routes() {
		body := map[httpapi.Body]string{httpapi.JSON: api.MediaJSON, httpapi.MergePatch: api.MediaMergePatch, httpapi.Raw: "*/*", httpapi.Lines: api.MediaNDJSON}[r.Body]
		want = append(want, openapitest.Operation{Pattern: described(r.Pattern), Permission: taken(r), Open: r.Auth == httpapi.Anonymous, Body: body})
	}
	for _, o := range openapitest.Load(t).Operations() {
		o.ID, o.Summary = "", "" // the document's own
		got = append(got, o)
	}
	slices.SortFunc(want, func(a, b openapitest.Operation) int { return strings.Compare(a.Pattern, b.Pattern) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the server's rows (-) and the operations of api/openapi.yaml (+) differ:\n%s", diff)
	}
}

// TestEveryOperationDescribesTheErrorsOfItsRow: what a row has says what can
// go wrong with it.
func TestEveryOperationDescribesTheErrorsOfItsRow(t *testing.T) {
	d := openapitest.Load(t)
	for _, r := range start(t, nil).Routes() {
		var want []int
		if r.Auth != httpapi.Anonymous {
			want = append(want, 401, 403, 429, 500, 503)
		}
		if r.Body == httpapi.JSON || r.Body == httpapi.MergePatch || r.Body == httpapi.Lines {
			want = append(want, 400, 408, 413, 415)
		}
		if r.Idempotent {
			want = append(want, 400, 409)
			// Only there is the idempotency key bound to the body.
			if slices.Contains(r.Permission.ApplicationTypes(), access.Public) {
				want = append(want, 422)
			}
		}
		// A key that is gone is deleted with a 204, whatever the path names.
		if strings.Contains(r.Pattern, "{") && r.Pattern != "DELETE /applications/{id}/keys/{key_id}" {
			want = append(want, 404)
		}
		for _, status := range want {
			if !d.Describes(described(r.Pattern), status) {
				t.Errorf("%s does not describe the status %d", r.Pattern, status)
			}
		}
	}
}

func TestTheDocumentListsWhatTheServerKnows(t *testing.T) {
	d := openapitest.Load(t)
	var permissions, entities, types []any
	for _, k := range token.Types() {
		types = append(types, k.Name)
	}
	for _, p := range access.Permissions() {
		permissions = append(permissions, p.String())
	}
	for _, e := range audit.EntityTypes() {
		entities = append(entities, e.Value)
	}
	settings := make(map[string]any)
	for _, s := range directory.SettingRows() {
		settings[s.Name] = s.Default
	}
	if diff := cmp.Diff(permissions, d.Enum("PermissionName")); diff != "" {
		t.Errorf("the permissions (-) and those of the document (+) differ:\n%s", diff)
	}
	if diff := cmp.Diff(types, d.Enum("TokenType")); diff != "" {
		t.Errorf("the types of tokens (-) and those of the document (+) differ:\n%s", diff)
	}
	if diff := cmp.Diff(entities, d.Enum("EntityTypeName")); diff != "" {
		t.Errorf("the entity types (-) and those of the document (+) differ:\n%s", diff)
	}
	if diff := cmp.Diff(settings, d.Properties("TenantSettings")); diff != "" {
		t.Errorf("the settings with their defaults (-) and those of the document (+) differ:\n%s", diff)
	}
}

// described is the pattern under which the document has a row. A document has
// no word for every method and every path.
func described(pattern string) string {
	switch pattern {
	case "* /proxy/{rest...}":
		return "POST /proxy/{rest}"
	case "GET /console/{rest...}":
		return "GET /console/{rest}"
	}
	return pattern
}

// TestEveryOperationAnswersAsDescribed walks over the whole API with the Go
// client; what goes over the wire is held against the document on the way.
func TestEveryOperationAnswersAsDescribed(t *testing.T) {
	v := start(t, nil)
	c := v.client(t, v.keys.ManagementKey)
	ctx := t.Context()
	walkApplications(ctx, t, c)
	walkTheRest(ctx, t, c)
	walkTokens(ctx, t, v.client(t, v.keys.PrivateKey), c)
	v.walkProxies(t, c)
	walkWebhooks(t, c)
	v.walkMembers(t, c, v.client(t, v.keys.PrivateKey))
	walkSessions(ctx, t, func(key string) *client.Client { return v.client(t, key) }, v.keys)
	walkReactors(ctx, t, func(key string) *client.Client { return v.client(t, key) }, v.keys, false)
	for _, path := range []string{"/metrics", "/openapi.json", "/openapi.yaml", "/docs", "/docs/page.js", "/v2/logs/stream?follow=false"} {
		if got := v.send(t, "GET", path, ""); got != 200 {
			t.Errorf("GET %s → %d, want 200", path, got)
		}
	}
	skipped := append(slices.Clone(needCode), needProvider...)
	v.walkConsole(t)
	if !console.Built() {
		t.Log("the console is not built: 'make console' builds it")
		skipped = append(skipped, "GET /console/{rest...}")
	}
	if elements.Built() {
		v.walkElements(t)
	} else {
		t.Log("the card fields are not built: 'make elements' builds them")
		skipped = append(skipped, "GET /elements", "GET /elements/v1/{file}", "GET /elements/v1/{key}/{kind}")
	}
	if err := c.Tenant.Delete(ctx); err != nil {
		t.Errorf("Tenant.Delete: %v", err)
	}
	if _, err := c.Tenant.Get(ctx); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("Tenant.Get after the deletion = %v, want ErrUnauthenticated", err)
	}
	for _, r := range v.Routes() {
		if !slices.Contains(skipped, r.Pattern) && !slices.ContainsFunc(v.watch.Seen(described(r.Pattern)), func(status int) bool { return status < 300 }) {
			t.Errorf("the walk saw no success of %s: statuses %v", r.Pattern, v.watch.Seen(described(r.Pattern)))
		}
	}
}

// walkConsole opens the pages that lead to the console as a browser does.
func (v *vault) walkConsole(t *testing.T) {
	t.Helper()
	page := http.StatusOK
	if !console.Built() {
		page = http.StatusServiceUnavailable
	}
	for _, c := range []struct {
		path, accept string
		want         int
	}{
		{"/", "text/html,*/*", http.StatusOK}, {"/", "*/*", http.StatusNotFound},
		{"/console", "text/html", page}, {"/console/", "text/html", page}, {"/console/tokens/a", "text/html", page},
	} {
		if got := v.send(t, "GET", c.path, "", "Accept", c.accept); got != c.want {
			t.Errorf("GET %s for %s → %d, want %d", c.path, c.accept, got, c.want)
		}
	}
}

func (v *vault) walkElements(t *testing.T) {
	t.Helper()
	for path, want := range map[string]int{
		"/elements/": 200, "/elements/v1/integrity.json": 200, "/elements/v1/elements.js": 200, "/elements/v1/other.js": 404,
		"/elements/v1/" + v.keys.PublicKey + "/card": 200, "/elements/v1/" + v.keys.PublicKey + "/other": 404, "/elements/v1/" + v.keys.PrivateKey + "/card": 404,
	} {
		if got := v.send(t, "GET", path, ""); got != want {
			t.Errorf("GET %s → %d, want %d", strings.Replace(path, v.keys.PublicKey, "KEY", 1), got, want)
		}
	}
}

func walkApplications(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	a, err := c.Applications.Create(ctx, api.CreateApplication{
		Name: "Kasse Süd", Type: "private", Permissions: []string{"token:create", "token:create"},
		Rules: []api.Rule{
			{Description: "cards", Priority: new(2), Container: "/PCI/", Transform: "mask", Permissions: []string{"token:read"}},
			{Priority: new(1), Container: "/", Transform: "redact", Permissions: []string{"token:search"}},
		},
		ExpiresAt: api.Time{Time: time.Now().Add(time.Hour)},
	})
	if err != nil {
		t.Fatalf("Applications.Create: %v", err)
	}
	if a.Key == "" || len(a.Keys) != 1 || len(a.Rules) != 2 || a.Rules[0].Container != "/pci/" {
		t.Errorf("Applications.Create = %d keys, key there %t, rules %v", len(a.Keys), a.Key != "", a.Rules)
	}
	if got, err := c.Applications.Get(ctx, a.ID); err != nil || got.ID != a.ID || got.Key != "" {
		t.Errorf("Applications.Get = %s, key there %t, %v, want %s without its key", got.ID, got.Key != "", err, a.ID)
	}
	if got, err := c.Applications.Own(ctx); err != nil || got.Type != "management" {
		t.Errorf("Applications.Own = a %s one, %v, want a management one", got.Type, err)
	}
	var names []string
	for a, err := range c.Applications.List(ctx, client.ApplicationFilter{Types: []string{"private", "public"}}) {
		if err != nil {
			t.Fatalf("Applications.List: %v", err)
		}
		names = append(names, a.Name)
	}
	slices.Sort(names)
	if want := []string{"Kasse Süd", "private", "public"}; !slices.Equal(names, want) {
		t.Errorf("Applications.List = %q, want %q", names, want)
	}
	if got, err := c.Applications.Replace(ctx, a.ID, api.ReplaceApplication{Name: "till", Permissions: []string{"token:use"}}); err != nil || got.Name != "till" || len(got.Rules) != 0 {
		t.Errorf("Applications.Replace = %s, %d rules, %v, want till without rules", got.Name, len(got.Rules), err)
	}

	k, err := c.Keys.Create(ctx, a.ID)
	if err != nil || k.Key == "" || k.Version != "2" {
		t.Errorf("Keys.Create = version %s, key there %t, %v, want version 2 with its key", k.Version, k.Key != "", err)
	}
	if got, err := c.Keys.Get(ctx, a.ID, k.ID); err != nil || got.Prefix != k.Prefix || got.Key != "" {
		t.Errorf("Keys.Get = %s, key there %t, %v, want %s without the key", got.Prefix, got.Key != "", err, k.Prefix)
	}
	if _, err := c.Keys.Create(ctx, a.ID); err != nil {
		t.Errorf("Keys.Create of a third: %v", err)
	}
	if _, err := c.Keys.Create(ctx, a.ID); !errors.Is(err, client.ErrConflict) {
		t.Errorf("Keys.Create of a fourth = %v, want ErrConflict", err)
	}
	for range 2 {
		if err := c.Keys.Delete(ctx, a.ID, k.ID); err != nil {
			t.Errorf("Keys.Delete: %v", err)
		}
	}
	if list, err := c.Keys.List(ctx, a.ID); err != nil || len(list) != 2 {
		t.Errorf("Keys.List = %d, %v, want 2", len(list), err)
	}
	if got, err := c.Applications.Regenerate(ctx, a.ID); err != nil || got.Key == "" || len(got.Keys) != 1 {
		t.Errorf("Applications.Regenerate = %d keys, key there %t, %v, want one with its text", len(got.Keys), got.Key != "", err)
	}
	if err := c.Applications.Delete(ctx, a.ID); err != nil {
		t.Errorf("Applications.Delete: %v", err)
	}
	if _, err := c.Applications.Get(ctx, a.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("Applications.Get after the deletion = %v, want ErrNotFound", err)
	}
}

func walkTheRest(ctx context.Context, t *testing.T, c *client.Client) {
	t.Helper()
	if err := errors.Join(c.Health(ctx), c.Ready(ctx)); err != nil {
		t.Errorf("Health, Ready: %v", err)
	}
	tenant, err := c.Tenant.Replace(ctx, api.ReplaceTenant{Name: "shop", Settings: map[string]string{"cvc_retention": "30m"}})
	if err != nil || tenant.Settings["cvc_retention"] != "30m" || tenant.Settings["fingerprint_tokens"] != "true" {
		t.Errorf("Tenant.Replace = %v, %v", tenant, err)
	}
	if got, err := c.Tenant.Get(ctx); err != nil || got.Name != "shop" || got.ModifiedAt.IsZero() {
		t.Errorf("Tenant.Get = %v, %v, want shop", got, err)
	}
	if u, err := c.Tenant.Usage(ctx); err != nil || u.TokenReport.TotalTokens != 0 {
		t.Errorf("Tenant.Usage = %v, %v, want none", u, err)
	}
	before, err := c.Tenant.CallbackSecret(ctx)
	if err != nil || before.PreviousSecret != "" {
		t.Errorf("Tenant.CallbackSecret: %v, previous there %t", err, before.PreviousSecret != "")
	}
	after, err := c.Tenant.RotateCallbackSecret(ctx)
	if err != nil || after.PreviousSecret != before.Secret || after.Secret == before.Secret || after.PreviousUntil.IsZero() {
		t.Errorf("Tenant.RotateCallbackSecret: %v, or not the secrets that were due", err)
	}
	if list, err := c.Permissions.List(ctx, "public"); err != nil || len(list) != 2 {
		t.Errorf("Permissions.List(public) = %d, %v, want 2", len(list), err)
	}
	if list, err := c.Permissions.List(ctx, ""); err != nil || len(list) != len(access.Permissions()) {
		t.Errorf("Permissions.List = %d, %v, want all", len(list), err)
	}
	part, err := c.Logs.PageFrom(ctx, client.LogFilter{}, "", 1)
	if err != nil || len(part.Data) != 1 || part.Pagination.Next == "" {
		t.Fatalf("Logs.PageFrom = %+v, %v, want one entry and a cursor", part, err)
	}
	if list, err := c.Logs.Names(ctx, part.Data[0].TenantID, "unknown"); err != nil || len(list) != 1 || list[0].Kind != "tenant" || list[0].Name == "" {
		t.Errorf("Logs.Names = %+v, %v, want the tenant", list, err)
	}
	walkReports(ctx, t, c)
	if list, err := c.Logs.EntityTypes(ctx); err != nil || len(list) != len(audit.EntityTypes()) {
		t.Errorf("Logs.EntityTypes = %d, %v, want all", len(list), err)
	}
	// Of the walk so far and of the tenant's making, which had no actor.
	operations := make(map[string]bool)
	for e, err := range c.Logs.List(ctx, client.LogFilter{EntityType: "application", From: time.Now().Add(-time.Hour), Before: time.Now().Add(time.Hour)}) {
		if err != nil {
			t.Fatalf("Logs.List: %v", err)
		}
		operations[e.Operation+" by "+e.ActorType] = true
	}
	for _, want := range []string{"create by system", "create by application", "read by application", "update by application", "rotate by application", "delete by application"} {
		if !operations[want] {
			t.Errorf("Logs.List has no %q among %v", want, operations)
		}
	}
}

// TestRefusalsAreDescribed asks for what is refused, once for each status.
func TestRefusalsAreDescribed(t *testing.T) {
	v := start(t, map[string]string{"max_body": "1024"})
	private := []string{"SVC-API-KEY", v.keys.PrivateKey}
	cases := map[string]struct {
		method, target, body string
		header               []string
		want                 int
	}{
		"not valid":             {"POST", "/applications", `{"name":"","type":"none"}`, nil, 400},
		"rules not valid":       {"POST", "/applications", `{"name":"n","type":"private","rules":[{"container":"x"}]}`, nil, 400},
		"malformed":             {"PUT", "/tenants/self", `{`, nil, 400},
		"a page that is none":   {"GET", "/logs?page=0&size=101", "", nil, 400},
		"a date that is none":   {"GET", "/logs?start_date=yesterday", "", nil, 400},
		"a type that is none":   {"GET", "/permissions?application_type=none", "", nil, 400},
		"a path that is none":   {"GET", "/applications/%FF", "", nil, 400},
		"no key":                {"GET", "/applications/key", "", []string{"SVC-API-KEY", ""}, 401},
		"an unknown key":        {"GET", "/tenants/self", "", []string{"SVC-API-KEY", "key_test_mgt_none"}, 401},
		"another kind of key":   {"GET", "/tenants/self", "", []string{"SVC-API-KEY", v.keys.PublicKey}, 403},
		"no such application":   {"GET", "/applications/none", "", nil, 404},
		"no application's keys": {"GET", "/applications/none/keys", "", nil, 404},
		"too large":             {"POST", "/applications", `"` + strings.Repeat("x", 2000) + `"`, nil, 413},
		"another media type":    {"PUT", "/tenants/self", "x", []string{"Content-Type", "text/plain"}, 415},

		"a nonce of nothing":          {"POST", "/sessions/authorize", `{"nonce":"none","permissions":["token:read"]}`, private, 404},
		"an authorization not valid":  {"POST", "/sessions/authorize", `{"rules":[{"conditions":[{}]}],"expires_at":"2000-01-01T00:00:00Z"}`, private, 400},
		"no such session":             {"DELETE", "/sessions/none", "", nil, 404},
		"a question not valid":        {"POST", "/access/explain", `{"permission":"none"}`, nil, 400},
		"a question about nobody":     {"POST", "/access/explain", `{"application_id":"none","permission":"log:read"}`, nil, 404},
		"a review of nothing":         {"GET", "/access/who?permission=token:read", "", nil, 400},
		"an idempotency key too long": {"POST", "/applications", `{}`, []string{"SVC-IDEMPOTENCY-KEY", strings.Repeat("x", 201)}, 400},

		"a token not valid":         {"POST", "/tokens", `{"type":"card","data":{"number":"1","cvc":"x"},"expires_at":"then"}`, private, 400},
		"a card expired":            {"POST", "/tokens", `{"type":"token","data":1,"expires_at":"1/1/2000"}`, private, 400},
		"a type of no token":        {"POST", "/tokenize", `[{"type":"none","data":1}]`, private, 400},
		"too much to tokenize":      {"POST", "/tokenize", `"` + strings.Repeat("x", 2000) + `"`, private, 413},
		"a metadata filter of text": {"GET", "/tokens?metadata=x", "", private, 400},
		"a page of no tokens":       {"GET", "/tokens?page=0", "", private, 400},
		"a place that is none":      {"GET", "/v2/tokens?start=x", "", private, 400},
		"a query that is none":      {"POST", "/tokens/search", `{"query":"x"}`, private, 400},
		"a place in no search":      {"POST", "/v2/tokens/search", `{"query":"type:card","start":"x"}`, private, 400},
		"an expression of nothing":  {"POST", "/detokenize", `"{{ none }}"`, private, 400},
		"too large once expanded":   {"POST", "/detokenize", `["{{long}}","{{long}}","{{long}}"]`, private, 413},
		"no such token":             {"GET", "/tokens/none", "", private, 404},
		"nothing to update":         {"PATCH", "/tokens/none", "{}", append(private, "Content-Type", "application/merge-patch+json"), 404},
		"nothing to delete":         {"DELETE", "/tokens/none", "", private, 404},
		"a patch as JSON":           {"PATCH", "/tokens/long", "{}", private, 415},
		"a patch of the type":       {"PATCH", "/tokens/long", `{"type":"card"}`, append(private, "Content-Type", "application/merge-patch+json"), 400},
		"a taken id":                {"POST", "/tokens", `{"id":"long","type":"token","data":1}`, private, 409},
		"a taken id among others":   {"POST", "/tokenize", `["x",{"id":"long","type":"token","data":1}]`, private, 409},
	}
	if got := v.send(t, "POST", "/tokens", `{"id":"long","type":"token","data":"`+strings.Repeat("x", 500)+`"}`, private...); got != 201 {
		t.Fatalf("POST /tokens → %d, want 201", got)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := v.send(t, c.method, c.target, c.body, c.header...); got != c.want {
				t.Errorf("%s %s → %d, want %d", c.method, c.target, got, c.want)
			}
		})
	}
}

// TestEveryOperationDescribesWhoIsTurnedAway: no key at all, and one that has
// not the permission.
func TestEveryOperationDescribesWhoIsTurnedAway(t *testing.T) {
	v := start(t, nil)
	for _, r := range v.Routes() {
		if r.Auth == httpapi.Anonymous {
			continue
		}
		method, path, _ := strings.Cut(r.Pattern, " ")
		path = strings.NewReplacer("{id}", "none", "{key_id}", "none", "{request_id}", "none", "{n}", "1").Replace(path)
		body, media := "", "application/json"
		if r.Body != httpapi.NoBody {
			body = "{}"
		}
		switch r.Body {
		case httpapi.MergePatch:
			media = api.MediaMergePatch
		case httpapi.Lines:
			media = api.MediaNDJSON
		}
		if got := v.send(t, method, path, body, "SVC-API-KEY", "", "Content-Type", media); got != 401 {
			t.Errorf("%s without a key → %d, want 401", r.Pattern, got)
		}
		other := v.keys.PrivateKey
		if r.Permission.OnTokens() || r.Auth == httpapi.PrivateKey {
			other = v.keys.ManagementKey
		}
		if got := v.send(t, method, path, body, "SVC-API-KEY", other, "Content-Type", media); taken(r) != "" && got != 403 {
			t.Errorf("%s with a key that lacks %s → %d, want 403", r.Pattern, taken(r), got)
		}
	}
}

func TestRateLimitsAreDescribed(t *testing.T) {
	v := startWith(t, keeptest.Options{Alone: true, Settings: map[string]string{"rate_limit.per_key": "0.1", "rate_limit.per_address": "1000"}})
	var got []int
	for range 4 { // a burst of ten seconds' worth and one
		got = append(got, v.send(t, "GET", "/tenants/self", ""))
	}
	if got[0] != 200 || got[3] != 429 {
		t.Errorf("four calls at a burst of two → %v, want 200 first and 429 last", got)
	}
}

// TestTheClientSendsIdempotencyKeysWhereRowsTakeThem compares the rows of the
// server with what its client sends.
func TestTheClientSendsIdempotencyKeysWhereRowsTakeThem(t *testing.T) {
	v := start(t, nil)
	doc := openapitest.Load(t)
	sent := make(map[string]bool)
	with := func(key string) *client.Client {
		c, err := client.New(v.URL, client.WithKey(key), client.WithHTTPClient(&http.Client{
			Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				sent[doc.Pattern(r)] = len(r.Header.Values("SVC-IDEMPOTENCY-KEY")) == 1
				return v.Client.Transport.RoundTrip(r)
			}),
		}))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := with(v.keys.ManagementKey)
	walkApplications(t.Context(), t, c)
	walkTheRest(t.Context(), t, c)
	walkTokens(t.Context(), t, with(v.keys.PrivateKey), c)
	walkSessions(t.Context(), t, with, v.keys)
	walkReactors(t.Context(), t, with, v.keys, false)
	v.walkProxies(t, c)
	walkWebhooks(t, c)
	v.walkMembers(t, c, with(v.keys.PrivateKey))
	if err := c.Tenant.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Routes() {
		byHand := r.Pattern == "* /proxy/{rest...}" || r.Pattern == "GET /members/self" || r.Pattern == "GET /v2/logs/stream" || r.Auth == httpapi.Anonymous && !strings.HasSuffix(r.Pattern, "z")
		if got, called := sent[r.Pattern]; got != r.Idempotent || !called && !byHand {
			t.Errorf("%s: the client called it %t, with an idempotency key %t; the row takes one %t", r.Pattern, called, got, r.Idempotent)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
