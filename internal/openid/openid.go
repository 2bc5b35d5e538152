// Package openid lets people sign in with OpenID Connect providers that the
// operator names: the code flow with PKCE, state and nonce.
//
// It promises that a person is known only by an ID token that the provider has
// signed for this client, in answer to a request that the same browser began,
// with an email that the provider has verified and, where it is required, the
// authentication that was asked for. It never stores tokens, and it decides
// nothing about members: package member does.
package openid

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// timeout bounds one call of a provider, and maxAnswer what is read of it.
const timeout = 10 * time.Second

var (
	errNoProvider  = fault.New(fault.NotFound, "no such identity provider")
	errUnreachable = fault.New(fault.Unavailable, "the identity provider does not respond").WithCode("provider_unavailable").RetryAfter(10 * time.Second)
	errFlow        = fault.New(fault.Forbidden, "the sign-in was not begun in this browser, or it took too long: begin again").WithCode("sign_in_invalid")
	errRefused     = fault.New(fault.Forbidden, "the identity provider did not sign you in").WithCode("sign_in_refused")
	errToken       = fault.New(fault.Forbidden, "the answer of the identity provider is not valid").WithCode("sign_in_invalid")
	errEmail       = fault.New(fault.Forbidden, "the identity provider has not verified your email").WithCode("email_unverified")
	errWeak        = fault.New(fault.Forbidden, "the sign-in needs a stronger authentication, such as a second factor").WithCode("stronger_authentication")
	errLogout      = fault.New(fault.Invalid, "the logout token is not valid")
)

// Identity is a person whom a provider has authenticated.
type Identity struct {
	Provider string
	Subject  string
	SID      string // the session at the provider; "" when it has none
	Email    string
	Name     string
	Tenant   string
	Role     string // for a person who is not a member yet; "" for none
}

// Providers are those that people sign in with.
type Providers struct {
	list []*provider
	now  func() time.Time
}

type provider struct {
	Settings
	client *http.Client

	mu    sync.Mutex     // guards found
	found *oidc.Provider // nil until it was reached
}

// New returns the providers of the settings. It calls none of them: one that is
// down keeps nobody from signing in with another, or with a link.
func New(list []Settings, now func() time.Time) *Providers {
	p := &Providers{now: now}
	for _, s := range list {
		p.list = append(p.list, &provider{Settings: s, client: &http.Client{Timeout: timeout}})
	}
	return p
}

// Named is what people see of a provider.
type Named struct{ ID, Name string }

// List returns the providers.
func (p *Providers) List() []Named {
	list := make([]Named, len(p.list))
	for i, x := range p.list {
		list[i] = Named{x.ID, x.Name}
	}
	return list
}

func (p *Providers) find(id string) (*provider, error) {
	for _, x := range p.list {
		if x.ID == id {
			return x, nil
		}
	}
	return nil, errNoProvider
}

// discover returns what the provider says of itself, and asks for it once.
func (x *provider) discover(ctx context.Context) (*oidc.Provider, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.found != nil {
		return x.found, nil
	}
	// The keys of the provider are fetched later with this context.
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), x.client)
	found, err := oidc.NewProvider(ctx, x.Issuer)
	if err != nil {
		return nil, fmt.Errorf("%w: discover a provider", errUnreachable)
	}
	x.found = found
	return found, nil
}

func (x *provider) oauth(found *oidc.Provider, callback string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: x.ClientID, ClientSecret: x.secret.Reveal(), Endpoint: found.Endpoint(), RedirectURL: callback,
		Scopes: []string{oidc.ScopeOpenID, "email", "profile"},
	}
}

// Flow is one sign-in under way. Its secret is in a cookie of the browser that
// began it; state, nonce and verifier are derived from that.
type Flow struct {
	Provider string
	ReturnTo string
	Secret   secret.Text
}

func (f Flow) derive(what string) string {
	sum := sha256.Sum256([]byte("tokenkeep sign-in " + what + " " + f.Provider + " " + f.Secret.Reveal()))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Text returns the flow as it stands in the cookie.
func (f Flow) Text() secret.Text {
	return secret.NewText(f.Provider + "." + base64.RawURLEncoding.EncodeToString([]byte(f.ReturnTo)) + "." + f.Secret.Reveal())
}

// ParseFlow reads the cookie of a flow.
func ParseFlow(text secret.Text) (Flow, bool) {
	parts := strings.Split(text.Reveal(), ".")
	if len(parts) != 3 || len(parts[2]) < 43 {
		return Flow{}, false
	}
	back, err := base64.RawURLEncoding.DecodeString(parts[1])
	return Flow{Provider: parts[0], ReturnTo: SafeReturn(string(back)), Secret: secret.NewText(parts[2])}, err == nil
}

// home is where people go when they have signed in.
const home = "/console/"

// SafeReturn returns the path of a console page, or that of its first page for
// anything else: nobody is sent elsewhere.
func SafeReturn(path string) string {
	odd := func(r rune) bool { return r <= ' ' || r == '\\' || r > '~' }
	if !strings.HasPrefix(path, home) || strings.Contains(path, "//") || strings.Contains(path, "..") || strings.ContainsFunc(path, odd) || len(path) > 1000 {
		return home
	}
	return path
}

// Start begins a sign-in: where the browser goes, and the flow for its cookie.
func (p *Providers) Start(ctx context.Context, id, returnTo, callback string) (location string, f Flow, err error) {
	x, err := p.find(id)
	if err != nil {
		return "", f, err
	}
	found, err := x.discover(ctx)
	if err != nil {
		return "", f, err
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	f = Flow{Provider: id, ReturnTo: SafeReturn(returnTo), Secret: secret.NewText(base64.RawURLEncoding.EncodeToString(random[:]))}
	options := []oauth2.AuthCodeOption{oidc.Nonce(f.derive("nonce")), oauth2.S256ChallengeOption(f.derive("verifier"))}
	if len(x.RequiredACR) > 0 {
		options = append(options, oauth2.SetAuthURLParam("acr_values", strings.Join(x.RequiredACR, " ")))
	}
	return x.oauth(found, callback).AuthCodeURL(f.derive("state"), options...), f, nil
}

// Callback is what a provider sent back with the browser.
type Callback struct{ State, Code, Error, Issuer string }

// Finish ends a sign-in: it returns who the provider says that the person is.
func (p *Providers) Finish(ctx context.Context, id string, f Flow, in Callback, callback string) (who Identity, err error) {
	x, err := p.find(id)
	if err != nil {
		return who, err
	}
	if f.Provider != id || f.Secret.IsZero() || subtle.ConstantTimeCompare([]byte(in.State), []byte(f.derive("state"))) != 1 {
		return who, errFlow
	}
	if in.Issuer != "" && in.Issuer != x.Issuer {
		return who, errToken // the answer of another provider
	}
	if in.Error != "" || in.Code == "" {
		return who, errRefused
	}
	found, err := x.discover(ctx)
	if err != nil {
		return who, err
	}
	calling, done := context.WithTimeout(oidc.ClientContext(ctx, x.client), timeout)
	defer done()
	token, err := x.oauth(found, callback).Exchange(calling, in.Code, oauth2.VerifierOption(f.derive("verifier")))
	if err != nil {
		// The library's words may repeat the answer.
		if answered := (*oauth2.RetrieveError)(nil); errors.As(err, &answered) && answered.Response != nil && answered.Response.StatusCode < 500 {
			return who, errRefused
		}
		return who, errUnreachable
	}
	text, _ := token.Extra("id_token").(string)
	verified, err := found.Verifier(&oidc.Config{ClientID: x.ClientID, Now: p.now}).Verify(calling, text)
	if err != nil {
		return who, errToken
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(f.derive("nonce"))) != 1 {
		return who, errToken
	}
	if verified.AccessTokenHash != "" && verified.VerifyAccessToken(token.AccessToken) != nil {
		return who, errToken
	}
	c, all, err := read(verified)
	if err == nil && c.Email == "" {
		c, all, err = x.userInfo(calling, found, token, verified.Subject, c, all)
	}
	if err != nil {
		return who, err
	}
	return x.identify(verified, c, all)
}

// read returns the claims of a token that is valid.
func read(token *oidc.IDToken) (c claims, all map[string]json.RawMessage, err error) {
	if token.Claims(&c) != nil || token.Claims(&all) != nil {
		return c, nil, errToken
	}
	return c, all, nil
}

// userInfo asks the provider for what its ID tokens leave out: email, name and
// the mapped claim. How the person was authenticated only the token tells.
func (x *provider) userInfo(ctx context.Context, found *oidc.Provider, token *oauth2.Token, subject string, c claims, all map[string]json.RawMessage) (claims, map[string]json.RawMessage, error) {
	if found.UserInfoEndpoint() == "" {
		return c, all, nil
	}
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return c, all, errUnreachable
	}
	var more claims
	if info.Subject != subject || info.Claims(&more) != nil {
		return c, all, errToken
	}
	c.Email, c.Verified, c.Name = more.Email, more.Verified, more.Name
	if _, there := all[x.Claim]; !there {
		_ = info.Claims(&all) // it was decoded just now
	}
	return c, all, nil
}

// claims are those of an ID token that count.
type claims struct {
	Email    string   `json:"email"`
	Verified bool     `json:"email_verified"`
	Name     string   `json:"name"`
	ACR      string   `json:"acr"`
	AMR      []string `json:"amr"`
	SID      string   `json:"sid"`
	Party    string   `json:"azp"`
}

// identify says who a person is by a token that is valid, and its claims.
func (x *provider) identify(token *oidc.IDToken, c claims, all map[string]json.RawMessage) (who Identity, err error) {
	switch {
	case token.Subject == "" || len(token.Audience) > 1 && c.Party != x.ClientID || c.Party != "" && c.Party != x.ClientID:
		return who, errToken
	case c.Email == "" || !c.Verified:
		return who, errEmail
	case len(x.RequiredACR) > 0 && !slices.Contains(x.RequiredACR, c.ACR):
		return who, errWeak
	case len(x.RequiredAMR) > 0 && !slices.ContainsFunc(x.RequiredAMR, func(m string) bool { return slices.Contains(c.AMR, m) }):
		return who, errWeak
	}
	who = Identity{Provider: x.ID, Subject: token.Subject, SID: c.SID, Email: c.Email, Name: c.Name}
	who.Tenant, who.Role = x.place(c.Email, values(all[x.Claim]))
	return who, nil
}

// values reads a claim that is a text or a list of texts.
func values(raw json.RawMessage) []string {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	return nil
}

// Logout is what a provider says of a session that ended there.
type Logout struct {
	Provider     string
	Subject, SID string // one of them at least
	Tenants      []string
}

// logoutAge is how old a logout token may be.
const logoutAge = 5 * time.Minute

// Logout reads a logout token of a provider's back-channel logout.
func (p *Providers) Logout(ctx context.Context, id, token string) (out Logout, err error) {
	x, err := p.find(id)
	if err != nil {
		return out, err
	}
	found, err := x.discover(ctx)
	if err != nil {
		return out, err
	}
	calling, done := context.WithTimeout(oidc.ClientContext(ctx, x.client), timeout)
	defer done()
	// Early logout tokens have no expiry: their age is checked instead.
	verified, err := found.Verifier(&oidc.Config{ClientID: x.ClientID, Now: p.now, SkipExpiryCheck: true}).Verify(calling, token)
	if err != nil {
		return out, errLogout
	}
	var c struct {
		SID    string                     `json:"sid"`
		Nonce  *string                    `json:"nonce"`
		Events map[string]json.RawMessage `json:"events"`
	}
	if verified.Claims(&c) != nil || c.Nonce != nil || c.Events["http://schemas.openid.net/event/backchannel-logout"] == nil || c.SID == "" && verified.Subject == "" {
		return out, errLogout
	}
	age := p.now().Sub(verified.IssuedAt)
	if age > logoutAge || age < -logoutAge || !verified.Expiry.IsZero() && verified.Expiry.Before(p.now()) {
		return out, errLogout
	}
	return Logout{Provider: id, Subject: verified.Subject, SID: c.SID, Tenants: x.tenants()}, nil
}
