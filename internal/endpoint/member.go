package endpoint

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/member"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// memberRoutes are the rows about people: who they are, and how they sign in.
func (s Services) memberRoutes() []row {
	return []row{
		{httpapi.Route{Pattern: "GET /members/self", Auth: httpapi.APIKey}, s.getSelf},
		{httpapi.Route{Pattern: "POST /members", Auth: httpapi.APIKey, Permission: access.MemberCreate, Body: httpapi.JSON}, s.createMember},
		{httpapi.Route{Pattern: "GET /members", Auth: httpapi.APIKey, Permission: access.MemberRead}, s.listMembers},
		{httpapi.Route{Pattern: "GET /members/{id}", Auth: httpapi.APIKey, Permission: access.MemberRead}, s.getMember},
		{httpapi.Route{Pattern: "PATCH /members/{id}", Auth: httpapi.APIKey, Permission: access.MemberUpdate, Body: httpapi.MergePatch}, s.updateMember},
		{httpapi.Route{Pattern: "DELETE /members/{id}", Auth: httpapi.APIKey, Permission: access.MemberDelete}, s.deleteMember},
		{httpapi.Route{Pattern: "GET /members/{id}/sessions", Auth: httpapi.APIKey, Permission: access.MemberRead}, s.listSignIns},
		{httpapi.Route{Pattern: "DELETE /members/sessions/{id}", Auth: httpapi.APIKey, Permission: access.MemberUpdate}, s.endSignIn},
		{httpapi.Route{Pattern: "GET /roles", Auth: httpapi.APIKey, Permission: access.MemberRead}, s.listRoles},
		{httpapi.Route{Pattern: "POST /roles", Auth: httpapi.APIKey, Permission: access.MemberUpdate, Body: httpapi.JSON}, s.createRole},
		{httpapi.Route{Pattern: "PUT /roles/{id}", Auth: httpapi.APIKey, Permission: access.MemberUpdate, Body: httpapi.JSON}, s.replaceRole},
		{httpapi.Route{Pattern: "DELETE /roles/{id}", Auth: httpapi.APIKey, Permission: access.MemberUpdate}, s.deleteRole},

		{httpapi.Route{Pattern: "GET /auth/providers", Auth: httpapi.Anonymous}, s.listProviders},
		{httpapi.Route{Pattern: "POST /auth/link", Auth: httpapi.Anonymous, Body: httpapi.JSON, NoCORS: true}, s.redeemLink},
		{httpapi.Route{Pattern: "POST /auth/sign-out", Auth: httpapi.Anonymous, NoCORS: true}, s.signOut},
		{httpapi.Route{Pattern: "GET /auth/{provider}/start", Auth: httpapi.Anonymous, NoCORS: true}, s.startSignIn},
		{httpapi.Route{Pattern: "GET /auth/{provider}/callback", Auth: httpapi.Anonymous, NoCORS: true}, s.finishSignIn},
		{httpapi.Route{Pattern: "POST /auth/{provider}/logout-token", Auth: httpapi.Anonymous, Body: httpapi.Raw, NoCORS: true}, s.providerLogout},

		{httpapi.Route{Pattern: "POST /tokens/{id}/reveal", Auth: httpapi.APIKey, Permission: access.TokenRead, Body: httpapi.JSON}, s.revealToken},
	}
}

func memberOf(m member.Member) api.Member {
	return api.Member{
		ID: m.ID, TenantID: m.TenantID, Email: m.Email, Name: m.Name, Role: m.Role, State: m.State, LastSeenAt: api.Time{Time: m.LastSeenAt},
		Made: api.Made{CreatedBy: m.CreatedBy, CreatedAt: api.Time{Time: m.CreatedAt}, ModifiedBy: m.ModifiedBy, ModifiedAt: api.Time{Time: m.ModifiedAt}},
	}
}

func signInOf(x member.SignIn) api.SignIn {
	return api.SignIn{
		ID: x.ID, MemberID: x.MemberID, CreatedAt: api.Time{Time: x.CreatedAt}, LastUsedAt: api.Time{Time: x.LastUsedAt},
		IdleExpiresAt: api.Time{Time: x.IdleExpiresAt}, ExpiresAt: api.Time{Time: x.ExpiresAt}, ClientAddress: x.Address, Provider: x.Provider,
	}
}

func roleOf(r member.Role) api.Role {
	return api.Role{
		Name: r.Name, Description: r.Description, Permissions: orEmpty(r.Permissions), Rules: orEmpty(r.Rules), BuiltIn: r.BuiltIn,
		Made: api.Made{CreatedBy: r.CreatedBy, CreatedAt: api.Time{Time: r.CreatedAt}, ModifiedBy: r.ModifiedBy, ModifiedAt: api.Time{Time: r.ModifiedAt}},
	}
}

func (s Services) getSelf(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	self, err := s.Members.Self(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, selfOf(self))
}

func selfOf(self member.Self) api.MemberSelf {
	return api.MemberSelf{
		Member: memberOf(self.Member), Role: roleOf(self.Role), Tenant: api.TenantNamed{ID: self.Member.TenantID, Name: self.TenantName},
		Session: signInOf(self.SignIn),
	}
}

func (s Services) createMember(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.CreateMember
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	made, err := s.Members.Create(r.Context(), c, member.NewMember{Email: in.Email, Name: in.Name, Role: in.Role})
	if err != nil {
		return nil, err
	}
	out, err := respond(http.StatusCreated, memberOf(made))
	if err == nil {
		out.Location = "/members/" + made.ID
	}
	return out, err
}

func (s Services) listMembers(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(_ url.Values, page store.Page) ([]member.Member, int64, error) {
		return s.Members.List(r.Context(), c, page)
	}, memberOf)
}

func (s Services) getMember(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	m, err := s.Members.Get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, memberOf(m))
}

func (s Services) updateMember(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.UpdateMember
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	m, err := s.Members.Update(r.Context(), c, r.PathValue("id"), member.Change{Name: in.Name, Role: in.Role, State: in.State})
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, memberOf(m))
}

func (s Services) deleteMember(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return emptyOr(s.Members.Delete(r.Context(), c, r.PathValue("id")))
}

// emptyOr is the response of a call that shows nothing.
func emptyOr(err error) (*response.Response, error) {
	if err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}

func (s Services) listSignIns(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	list, err := s.Members.SignIns(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, each(list, signInOf))
}

func (s Services) endSignIn(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return emptyOr(s.Members.EndSignIn(r.Context(), c, r.PathValue("id")))
}

func (s Services) listRoles(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	list, err := s.Members.Roles(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, each(list, roleOf))
}

func (s Services) createRole(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	in, err := newRoleOf(r)
	if err != nil {
		return nil, err
	}
	made, err := s.Members.CreateRole(r.Context(), c, in)
	if err != nil {
		return nil, err
	}
	out, err := respond(http.StatusCreated, roleOf(made))
	if err == nil {
		out.Location = "/roles/" + made.Name
	}
	return out, err
}

func newRoleOf(r *http.Request) (member.NewRole, error) {
	var in api.CreateRole
	err := httpapi.Decode(r, &in)
	return member.NewRole{Name: in.Name, Description: in.Description, Permissions: in.Permissions, Rules: in.Rules}, err
}

func (s Services) replaceRole(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	in, err := newRoleOf(r)
	if err != nil {
		return nil, err
	}
	changed, err := s.Members.ReplaceRole(r.Context(), c, r.PathValue("id"), in)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, roleOf(changed))
}

func (s Services) deleteRole(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return emptyOr(s.Members.DeleteRole(r.Context(), c, r.PathValue("id")))
}

func (s Services) revealToken(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.RevealToken
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	t, err := s.Tokens.Reveal(r.Context(), c, r.PathValue("id"), in.Reason)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, raw(t.Object()))
}

// redeemLink signs the member of a link in: the answer sets the cookie.
func (s Services) redeemLink(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := httpapi.RequireOwnPage(r); err != nil {
		return nil, err
	}
	var in api.RedeemLink
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	in.Code = cmp.Or(in.Code, "none") // which is no code
	signedIn, err := s.Members.Redeem(r.Context(), httpapi.OriginOf(r.Context()), secret.NewText(in.Code))
	if err != nil {
		return nil, err
	}
	return &response.Response{Stream: func(w http.ResponseWriter) error {
		httpapi.SetSignInCookie(w, r, signedIn.Cookie, member.MaxLife)
		return httpapi.WriteJSON(w, http.StatusOK, memberOf(signedIn.Member))
	}}, nil
}

// signOut ends the session of the cookie, if there is one, and removes the
// cookie in any case.
func (s Services) signOut(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := httpapi.RequireOwnPage(r); err != nil {
		return nil, err
	}
	cookie, err := httpapi.SignInCookie(r)
	if err != nil {
		return nil, err
	}
	if !cookie.IsZero() {
		if err := s.Members.SignOut(r.Context(), httpapi.OriginOf(r.Context()), cookie); err != nil {
			return nil, err
		}
	}
	return &response.Response{Stream: func(w http.ResponseWriter) error {
		httpapi.SetSignInCookie(w, r, secret.Text{}, 0)
		w.WriteHeader(http.StatusNoContent)
		return nil
	}}, nil
}

// createLink makes a link that signs a member in. Without an email, the member
// is the one of the role: good for one person on one machine.
func (s Services) createLink(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	var in api.CreateLink
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	email := cmp.Or(in.Email, in.Role+"@localhost")
	link, err := s.Members.CreateLink(r.Context(), c, member.NewMember{Email: email, Name: cmp.Or(in.Name, email), Role: in.Role})
	if err != nil {
		return nil, err
	}
	return respond(http.StatusCreated, api.CreatedLink{
		URL: SignInLink(s.ConsoleURL(), link.Code), ExpiresAt: api.Time{Time: link.ExpiresAt}, Member: memberOf(link.Member),
	})
}

// SignInLink is the address of a link. The code is in the fragment, which no
// browser sends and no proxy logs.
func SignInLink(base string, code secret.Text) string {
	return base + "/console/sign-in#code=" + code.Reveal()
}
