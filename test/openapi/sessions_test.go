package openapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/server"
	"github.com/tokenkeep/tokenkeep/test/openapitest"
)

// walkSessions makes a session, authorizes it with rules of both kinds, uses it,
// asks about it, and ends it.
func walkSessions(ctx context.Context, t *testing.T, with func(key string) *client.Client, keys server.DevKeys) {
	t.Helper()
	public, private, manager := with(keys.PublicKey), with(keys.PrivateKey), with(keys.ManagementKey)
	made, err := public.Sessions.Create(ctx)
	if err != nil {
		t.Fatalf("Sessions.Create: %v", err)
	}
	if _, err := with(made.SessionKey).Tokens.Get(ctx, "none"); !errors.Is(err, client.ErrForbidden) {
		t.Errorf("Tokens.Get before the authorization = %v, want ErrForbidden", err)
	}
	waiting := onlySession(ctx, t, manager)
	if got, err := manager.Access.Explain(ctx, api.ExplainAccess{SessionID: waiting.ID, Permission: "token:read", Container: "/"}); err != nil || got.Allowed || got.Inactive == "" || got.DecidedBy != nil {
		t.Errorf("Access.Explain of a session that waits = %+v, %v", got, err)
	}
	grant := api.AuthorizeSession{
		Nonce: made.Nonce, Permissions: []string{"token:create"}, ExpiresAt: api.Time{Time: time.Now().Add(time.Hour)},
		Rules: []api.Rule{
			{Transform: "reveal", Permissions: []string{"token:read"}, Conditions: []api.Condition{{Attribute: "id", Operator: "starts_with", Value: "walk-"}, {Attribute: "container", Operator: "equals", Value: "/general/high/"}}},
			{Container: "/General/", Transform: "mask", Permissions: []string{"token:read"}},
		},
	}
	if err := private.Sessions.Authorize(ctx, grant); err != nil {
		t.Fatalf("Sessions.Authorize: %v", err)
	}
	if err := private.Sessions.Authorize(ctx, grant); !errors.Is(err, client.ErrConflict) {
		t.Errorf("Sessions.Authorize once more = %v, want ErrConflict", err)
	}
	if got, err := with(made.SessionKey).Tokens.Create(ctx, api.CreateToken{ID: "walk-1", Type: "token", Data: "seven"}); err != nil || got.ID != "walk-1" {
		t.Errorf("Tokens.Create in a session = %v", err)
	}
	session := onlySession(ctx, t, manager)
	if session.AuthorizedBy == "" || len(session.Rules) != 2 || session.Rules[1].Container != "/general/" {
		t.Errorf("Sessions.List = %+v", session)
	}
	for name, in := range map[string]api.ExplainAccess{
		"a session and a token":  {SessionID: session.ID, Permission: "token:read", TokenID: "walk-1"},
		"containers":             {SessionID: session.ID, Permission: "token:read", Containers: []string{"/general/high/", "/"}},
		"a grant that might be":  {Proposed: &api.ProposedGrant{Type: "session", Rules: grant.Rules}, Permission: "token:read", Container: "/general/high/"},
		"a management one's log": {Proposed: &api.ProposedGrant{Type: "management", Permissions: []string{"log:read"}}, Permission: "log:read"},
	} {
		if got, err := manager.Access.Explain(ctx, in); err != nil || got.Allowed != (name != "containers") || len(got.Steps) == 0 {
			t.Errorf("Access.Explain of %s = %+v, %v", name, got, err)
		}
	}
	for _, at := range [][2]string{{"token:read", "/general/"}, {"session:read", ""}} {
		var kinds []string
		for h, err := range manager.Access.Who(ctx, at[0], at[1]) {
			if err != nil {
				t.Fatalf("Access.Who: %v", err)
			}
			kinds = append(kinds, h.Kind)
		}
		want := []string{"application", "session"}
		if at[1] == "" {
			want = want[:1]
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("Access.Who(%s, %s) = %v, want %v", at[0], at[1], kinds, want)
		}
	}
	if err := manager.Sessions.Delete(ctx, session.ID); err != nil {
		t.Errorf("Sessions.Delete: %v", err)
	}
	if _, err := with(made.SessionKey).Tokens.Get(ctx, "walk-1"); !errors.Is(err, client.ErrUnauthenticated) {
		t.Errorf("Tokens.Get after the session's end = %v, want ErrUnauthenticated", err)
	}
}

func onlySession(ctx context.Context, t *testing.T, c *client.Client) (only api.Session) {
	t.Helper()
	n := 0
	for s, err := range c.Sessions.List(ctx) {
		if err != nil {
			t.Fatalf("Sessions.List: %v", err)
		}
		only, n = s, n+1
	}
	if n != 1 {
		t.Fatalf("Sessions.List = %d, want one", n)
	}
	return only
}

// TestIdempotentRowsAreDescribedAsSuch, and no others.
func TestIdempotentRowsAreDescribedAsSuch(t *testing.T) {
	doc := openapitest.Load(t)
	for _, r := range start(t, nil).Routes() {
		key, replayed, conflict := doc.Idempotency(described(r.Pattern))
		if key != r.Idempotent || r.Idempotent && !(replayed && conflict) {
			t.Errorf("%s is idempotent %t, and the document has the key %t, the replay %t, the conflict %t", r.Pattern, r.Idempotent, key, replayed, conflict)
		}
	}
}

// TestReplaysAndConflictsAreDescribed: the second answer, and the one to a
// request that came too early.
func TestReplaysAndConflictsAreDescribed(t *testing.T) {
	v := start(t, nil)
	for range 2 {
		for _, call := range [][2]string{{"POST /applications", `{"name":"n","type":"private","permissions":["token:use"]}`}, {"PUT /tenants/self", `{"name":"n"}`}, {"POST /tenants/self/callback-secret", ""}} {
			method, path, _ := strings.Cut(call[0], " ")
			if got := v.send(t, method, path, call[1], "SVC-IDEMPOTENCY-KEY", "one"); got >= 300 {
				t.Errorf("%s → %d", call[0], got)
			}
		}
	}
	r, err := http.NewRequest("POST", "http://127.0.0.1:1/tokens", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	early := &http.Response{StatusCode: 409, Header: http.Header{"Content-Type": {api.MediaJSON}, "Svc-Trace-Id": {"t"}, "Retry-After": {"1"}}}
	body := fmt.Sprintf(`{"title":"Conflict","status":409,"detail":%q}`, "a request with this idempotency key is being processed")
	if err := openapitest.Load(t).Check(r, []byte("{}"), early, []byte(body)); err != nil {
		t.Errorf("the answer to a request that came too early is not described: %v", err)
	}
}
