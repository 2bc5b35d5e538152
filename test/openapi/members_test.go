package openapi_test

import (
	"net/http"
	"testing"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
)

// needProvider are the rows that an identity provider takes part in; test/people
// has one.
var needProvider = []string{"GET /auth/{provider}/start", "GET /auth/{provider}/callback", "POST /auth/{provider}/logout-token"}

// walkMembers adds members and roles, and signs one in.
func (v *vault) walkMembers(t *testing.T, c, shop *client.Client) {
	t.Helper()
	ctx := t.Context()
	role, err := c.Roles.Create(ctx, api.CreateRole{Name: "disputes", Description: "Reveals.", Rules: []api.Rule{
		{Container: "/pci/", Transform: "reveal", Permissions: []string{"token:read"}, RequiresReason: true},
	}})
	if err != nil || !role.Rules[0].RequiresReason || role.BuiltIn {
		t.Errorf("Roles.Create = %+v, %v", role, err)
	}
	if got, err := c.Roles.Replace(ctx, "disputes", api.CreateRole{Permissions: []string{"token:read"}}); err != nil || len(got.Rules) != 0 {
		t.Errorf("Roles.Replace = %+v, %v", got, err)
	}
	if list, err := c.Roles.List(ctx); err != nil || len(list) != 6 {
		t.Errorf("Roles.List = %d, %v, want six", len(list), err)
	}
	m, err := c.Members.Create(ctx, api.CreateMember{Email: "jane@shop.example", Name: "Jane", Role: "disputes"})
	if err != nil || m.State != "active" {
		t.Fatalf("Members.Create = %+v, %v", m, err)
	}
	if got, err := c.Members.Get(ctx, m.ID); err != nil || got.Email != m.Email {
		t.Errorf("Members.Get = %+v, %v", got, err)
	}
	if got, err := c.Members.Update(ctx, m.ID, api.UpdateMember{Role: new("auditor")}); err != nil || got.Role != "auditor" {
		t.Errorf("Members.Update = %+v, %v", got, err)
	}
	for got, err := range c.Members.List(ctx) {
		if err != nil || got.ID == "" {
			t.Errorf("Members.List = %+v, %v", got, err)
		}
	}
	person := v.Person(t, v.keys.TenantID, "auditor", "jane@shop.example")
	if got := v.As(t, person, http.MethodGet, "/members/self", ""); got.Status != 200 {
		t.Errorf("GET /members/self = %s", got)
	}
	if got := v.send(t, "GET", "/members/self", "", "SVC-API-KEY", "", "Cookie", person.Cookie); got != 200 {
		t.Errorf("GET /members/self = %d", got)
	}
	code := v.LinkCode(t, v.keys.TenantID, "auditor", "jane@shop.example")
	if got := v.send(t, "POST", "/auth/link", `{"code":"`+code+`"}`, "SVC-API-KEY", ""); got != 200 {
		t.Errorf("POST /auth/link = %d", got)
	}
	sessions, err := c.Members.Sessions(ctx, m.ID)
	if err != nil || len(sessions) != 2 {
		t.Fatalf("Members.Sessions = %d, %v, want two", len(sessions), err)
	}
	if err := c.Members.EndSession(ctx, sessions[0].ID); err != nil {
		t.Errorf("Members.EndSession: %v", err)
	}
	if got := v.send(t, "GET", "/auth/providers", "", "SVC-API-KEY", ""); got != 200 {
		t.Errorf("GET /auth/providers = %d", got)
	}
	if got := v.send(t, "POST", "/auth/sign-out", "", "SVC-API-KEY", "", "Cookie", person.Cookie); got != 204 {
		t.Errorf("POST /auth/sign-out = %d", got)
	}
	if err := c.Members.Delete(ctx, m.ID); err != nil {
		t.Errorf("Members.Delete: %v", err)
	}
	if err := c.Roles.Delete(ctx, "disputes"); err != nil {
		t.Errorf("Roles.Delete: %v", err)
	}
	token, err := shop.Tokens.Create(ctx, api.CreateToken{Type: "token", Data: "seven"})
	if err != nil {
		t.Fatalf("Tokens.Create: %v", err)
	}
	if got, err := shop.Tokens.Reveal(ctx, token.ID, "the walk"); err != nil || string(got.Data) != `"seven"` {
		t.Errorf("Tokens.Reveal = %v, %v", got.ID, err)
	}
}
