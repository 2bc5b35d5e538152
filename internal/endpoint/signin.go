package endpoint

import (
	"io"
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/member"
	"github.com/tokenkeep/tokenkeep/internal/openid"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// maxLogoutToken bounds the body of a back-channel logout.
const maxLogoutToken = 64 << 10

var errLogoutBody = fault.New(fault.Invalid, "the body must be a form with a logout_token")

func (s Services) listProviders(_ *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	out := api.SignInProviders{Providers: []api.SignInProvider{}, Links: true}
	for _, p := range s.Providers.List() {
		out.Providers = append(out.Providers, api.SignInProvider{ID: p.ID, Name: p.Name})
	}
	return respond(http.StatusOK, out)
}

// callback is the address to which a provider sends browsers back.
func (s Services) callback(id string) string { return s.ConsoleURL() + "/auth/" + id + "/callback" }

// startSignIn sends the browser to a provider.
func (s Services) startSignIn(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := httpapi.RequireOwnPage(r); err != nil {
		return nil, err
	}
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("provider")
	location, flow, err := s.Providers.Start(r.Context(), id, q.Get("return_to"), s.callback(id))
	if err != nil {
		return nil, err
	}
	return redirect(location, func(w http.ResponseWriter) { httpapi.SetFlowCookie(w, r, flow.Text()) }), nil
}

// finishSignIn is where a provider sends the browser back: it signs the person
// in, and sends the browser on.
func (s Services) finishSignIn(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := httpapi.RequireSafeConnection(r); err != nil {
		return nil, err
	}
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	id := r.PathValue("provider")
	flow, _ := openid.ParseFlow(httpapi.FlowCookie(r)) // the zero flow is refused
	who, err := s.Providers.Finish(r.Context(), id, flow, openid.Callback{
		State: q.Get("state"), Code: q.Get("code"), Error: q.Get("error"), Issuer: q.Get("iss"),
	}, s.callback(id))
	if err != nil {
		return nil, err
	}
	signedIn, err := s.Members.SignIn(r.Context(), who.Tenant, httpapi.OriginOf(r.Context()), member.Identity{
		Provider: who.Provider, Subject: who.Subject, SID: who.SID, Email: who.Email, Name: who.Name, Role: who.Role,
	})
	if err != nil {
		return nil, err
	}
	return redirect(flow.ReturnTo, func(w http.ResponseWriter) {
		httpapi.SetFlowCookie(w, r, secret.Text{})
		httpapi.SetSignInCookie(w, r, signedIn.Cookie, member.MaxLife)
	}), nil
}

// redirect sends a browser on, with cookies.
func redirect(location string, cookies func(http.ResponseWriter)) *response.Response {
	return &response.Response{Stream: func(w http.ResponseWriter) error {
		cookies(w)
		w.Header().Set("Location", location)
		w.WriteHeader(http.StatusSeeOther)
		return nil
	}}
}

// providerLogout takes the logout token of a provider's back-channel logout.
func (s Services) providerLogout(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxLogoutToken+1))
	if err != nil || len(b) > maxLogoutToken {
		return nil, errLogoutBody
	}
	form, err := url.ParseQuery(string(b))
	if err != nil || len(form["logout_token"]) != 1 {
		return nil, errLogoutBody
	}
	out, err := s.Providers.Logout(r.Context(), r.PathValue("provider"), form.Get("logout_token"))
	if err != nil {
		return nil, err
	}
	for _, tenant := range out.Tenants {
		if err := s.Members.EndFromProvider(r.Context(), tenant, httpapi.OriginOf(r.Context()), out.Provider, out.Subject, out.SID); err != nil {
			return nil, err
		}
	}
	return &response.Response{Status: http.StatusOK}, nil
}
