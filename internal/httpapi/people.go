package httpapi

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/secret"
)

// The names of the cookie. A browser takes one that begins with __Host- only
// over TLS, for this host and the whole of it; over plain http on loopback it
// takes no such cookie, so the name is another there.
const (
	secureCookie = "__Host-tokenkeep"
	plainCookie  = "tokenkeep"
)

var (
	errCrossOrigin = fault.New(fault.Forbidden, "the request comes from another web page: people use the service from its own origin only").WithCode("cross_origin")
	errManyCookies = fault.New(fault.Unauthenticated, "more than one session was sent")
	errPlainHTTP   = fault.New(fault.Forbidden, "people sign in over https only: set public_url to an https address and let TLS end here or in front of this server (plain http is for loopback)").WithCode("https_required")
)

// People are members who have signed in.
type People struct {
	// Authenticate finds the member of a cookie. Nil knows nobody.
	Authenticate func(ctx context.Context, cookie secret.Text) (access.Caller, error)
	// Secure says that browsers reach this server over TLS. Otherwise people
	// sign in at a loopback address only.
	Secure bool
	// PublicURL is the origin under which browsers reach this server; "" takes
	// the host of each request.
	PublicURL string
}

// cookieName is the name of the cookie.
func (p People) cookieName() string {
	if p.Secure {
		return secureCookie
	}
	return plainCookie
}

// cookie returns the secret in the cookie of a request; the zero Text when
// there is none.
func (p People) cookie(r *http.Request) (secret.Text, error) {
	found := r.CookiesNamed(p.cookieName())
	switch {
	case len(found) > 1:
		return secret.Text{}, errManyCookies
	case len(found) == 0 || found[0].Value == "":
		return secret.Text{}, nil
	}
	return secret.NewText(found[0].Value), nil
}

// authenticatePerson finds the member of a request without a key. The cookie
// counts on requests of our own pages only, whatever the method.
func (x *exchange) authenticatePerson(r *http.Request) (access.Caller, error) {
	people := x.handler.options.People
	if people.Authenticate == nil {
		return access.Caller{}, errNoKey
	}
	cookie, err := people.cookie(r)
	if err != nil {
		return access.Caller{}, err
	}
	if cookie.IsZero() {
		return access.Caller{}, errNoKey
	}
	if err := people.requireOwnPage(r); err != nil {
		return access.Caller{}, err
	}
	c, err := people.Authenticate(r.Context(), cookie)
	if err != nil {
		return access.Caller{}, err
	}
	c = c.WithOrigin(x.originOf())
	x.caller = c
	return c, x.limitKey(c.Member().SignIn, c)
}

// RequireOwnPage returns nil when a request was made by a page of this server or
// by no page at all, over a connection on which people may sign in.
func RequireOwnPage(r *http.Request) error {
	x := exchangeOf(r.Context())
	if x == nil {
		return errNoExchange
	}
	return x.handler.options.People.requireOwnPage(r)
}

func (p People) requireOwnPage(r *http.Request) error {
	if !p.Secure && !isLoopback(r.Host) {
		return errPlainHTTP
	}
	if !p.ownPage(r) {
		return errCrossOrigin
	}
	return nil
}

// ownPage reports whether a request was made by a page of this server, or by no
// page at all. Browsers say so in Sec-Fetch-Site; what has neither that nor an
// Origin is no browser of the last years, and its cookie is SameSite=Strict.
func (p People) ownPage(r *http.Request) bool {
	var guard http.CrossOriginProtection
	if p.PublicURL != "" {
		_ = guard.AddTrustedOrigin(p.PublicURL) // the setting was checked
	}
	if guard.Check(r) != nil {
		return false
	}
	// The guard lets requests that change nothing pass. Here they read what
	// belongs to a person.
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin":
		return true
	case "none":
		return r.Method == http.MethodGet || r.Method == http.MethodHead
	case "":
		return p.ownOrigin(r)
	}
	return false
}

// ownOrigin compares the Origin of a request with this server's.
func (p People) ownOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || p.PublicURL != "" && origin == p.PublicURL {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && p.PublicURL == "" && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// isLoopback reports whether the host of a request names this machine. A page
// elsewhere cannot make its name resolve to us and pass.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}

// SignInCookie returns the secret in the cookie of a request; the zero Text when
// there is none.
func SignInCookie(r *http.Request) (secret.Text, error) {
	x := exchangeOf(r.Context())
	if x == nil {
		return secret.Text{}, errNoExchange
	}
	return x.handler.options.People.cookie(r)
}

// SetSignInCookie sets the cookie of a sign-in in a response; the zero Text
// removes it.
func SetSignInCookie(w http.ResponseWriter, r *http.Request, value secret.Text, life time.Duration) {
	x := exchangeOf(r.Context())
	if x == nil {
		return
	}
	people := x.handler.options.People
	c := &http.Cookie{ //nolint:gosec // Secure is false over plain http on loopback only, where browsers would drop the cookie
		Name: people.cookieName(), Value: value.Reveal(), Path: "/", MaxAge: int(life.Seconds()),
		HttpOnly: true, Secure: people.Secure, SameSite: http.SameSiteStrictMode,
	}
	if value.IsZero() {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// RequireSafeConnection returns nil on a connection on which people may sign in,
// whatever page the request comes from: a provider sends browsers back.
func RequireSafeConnection(r *http.Request) error {
	x := exchangeOf(r.Context())
	if x == nil {
		return errNoExchange
	}
	if !x.handler.options.People.Secure && !isLoopback(r.Host) {
		return errPlainHTTP
	}
	return nil
}

// flowLife is how long a sign-in with a provider may take.
const flowLife = 10 * time.Minute

func (p People) flowName() string { return p.cookieName() + "-flow" }

// SetFlowCookie sets the cookie of a sign-in with a provider that is under way;
// the zero Text removes it. Browsers send it when the provider sends them back,
// so it is not SameSite=Strict; it opens nothing by itself.
func SetFlowCookie(w http.ResponseWriter, r *http.Request, value secret.Text) {
	x := exchangeOf(r.Context())
	if x == nil {
		return
	}
	people := x.handler.options.People
	c := &http.Cookie{ //nolint:gosec // Secure is false over plain http on loopback only, where browsers would drop the cookie
		Name: people.flowName(), Value: value.Reveal(), Path: "/", MaxAge: int(flowLife.Seconds()),
		HttpOnly: true, Secure: people.Secure, SameSite: http.SameSiteLaxMode,
	}
	if value.IsZero() {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// FlowCookie returns the cookie of a sign-in with a provider; the zero Text when
// there is none, or more than one.
func FlowCookie(r *http.Request) secret.Text {
	x := exchangeOf(r.Context())
	if x == nil {
		return secret.Text{}
	}
	found := r.CookiesNamed(x.handler.options.People.flowName())
	if len(found) != 1 {
		return secret.Text{}
	}
	return secret.NewText(found[0].Value)
}
