package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/expression"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// Ephemeral stands in the log where the id of a proxy would: for calls that
// bring their destination along.
const Ephemeral = "ephemeral"

var (
	// ErrNoAPIKey is the fault of a call without the API key that is due.
	ErrNoAPIKey = fault.New(fault.Unauthenticated, "The SVC-API-KEY header is required")

	errNoTarget    = fault.New(fault.Invalid, "a proxy key or a destination is required")
	errManyKeys    = fault.New(fault.Invalid, "more than one proxy key was sent")
	errManyTargets = fault.New(fault.Invalid, "more than one destination was sent")
	errConnect     = fault.New(fault.Invalid, "CONNECT cannot be proxied")

	errDisabled  = access.Refuse(access.TokenUse, fault.New(fault.Forbidden, "the tenant does not allow calls that name their own destination"))
	errAnonymous = access.Refuse(access.TokenUse, fault.New(fault.Forbidden, "the tenant does not allow detokenization without an API key"))
	errNoHolder  = access.Refuse(access.TokenUse, fault.New(fault.Forbidden, "the application of this proxy can use no tokens"))
)

// Incoming is a request to a proxy.
type Incoming struct {
	Method string
	Path   string // what follows /proxy, as it was sent: "" or from a slash on
	Query  string // as it was sent, without the question mark
	// ForceQuery reports that a question mark was sent with nothing after it.
	ForceQuery bool
	Header     http.Header
	Body       io.Reader // not nil
	Length     int64     // of the body; -1 when it is not known
	Origin     access.Origin
	// Authenticate finds the caller by the API key, if one is due.
	Authenticate func() (access.Caller, error)
}

func (s *Service) header(name string) string { return api.Header(s.options.HeaderPrefix, name) }

// target is what a call goes to, and who calls.
type target struct {
	proxy       Proxy // without contents for a call that brings its destination
	id          string
	tenant      string
	destination *url.URL
	code        shaping
	query       string // of the call, without the proxy key; "?" and what follows, or ""
	anonymous   bool
	caller      access.Caller  // of the log; for anonymous calls what they may do is asked when it matters
	viewer      *access.Caller // who looks at a preview of the call; nil for a call
	previewed   []token.Previewed
}

// about names the proxy in a refusal that names nothing else, once it is known.
func (t target) about(err error) error {
	if t.id == "" {
		return err
	}
	return access.About(err, access.Entity{Type: audit.Proxy, ID: t.id})
}

// admit finds the proxy of a call and says whether the caller may call it. The
// caller is there even when it may not, as far as it is known.
func (s *Service) admit(ctx context.Context, in Incoming) (t target, err error) {
	if in.Method == http.MethodConnect {
		return t, errConnect
	}
	query, keys := s.cutKeys(in)
	for _, key := range in.Header.Values(s.header(api.ProxyKey)) {
		if key != "" {
			keys = append(keys, key)
		}
	}
	t.query = query
	if len(keys) == 0 {
		return s.admitEphemeral(ctx, in, t)
	}
	for _, key := range keys[1:] {
		if key != keys[0] {
			return t, errManyKeys
		}
	}
	key, ok := access.ParseKey(secret.NewText(keys[0]), access.ProxyKey)
	if !ok {
		return t, errNoProxy
	}
	p, err := s.definitions.FindByKey(ctx, key.Tenant(), key.Text())
	if err != nil {
		return t, err
	}
	return s.enter(ctx, in, t, p)
}

// enter says whether the caller may call a proxy that was found.
func (s *Service) enter(ctx context.Context, in Incoming, t target, p Proxy) (_ target, err error) {
	t.proxy, t.id, t.tenant = p, p.ID, p.TenantID
	if t.anonymous = !RequireAuth(p); t.anonymous {
		// With nothing to detokenize nothing is asked: whoever has the key may call.
		t.caller = access.NewAnonymousProxy(t.tenant, access.PlainGrant(access.TokenUse)).WithOrigin(in.Origin)
	} else if t.caller, err = s.authenticate(in); t.caller.Tenant() != t.tenant {
		t.caller = access.Caller{} // what it wanted was not there for it
		if err == nil {
			err = errNoProxy
		}
		return t, err
	} else if err != nil {
		return t, err
	} else if err := t.caller.RequireSomewhere(access.TokenUse); err != nil {
		return t, err
	}
	// The rules may be others than when the proxy was defined.
	if t.destination, err = s.destinations.Check(Destination(p)); err != nil {
		return t, err
	}
	t.code, err = s.shapingOf(ctx, p)
	return t, err
}

// admitEphemeral is admit for a call that names its destination in a header.
func (s *Service) admitEphemeral(ctx context.Context, in Incoming, t target) (_ target, err error) {
	given := in.Header.Values(s.header(api.ProxyURL))
	switch {
	case len(given) == 0 || len(given) == 1 && given[0] == "":
		return t, errNoTarget
	case len(given) > 1:
		return t, errManyTargets
	}
	if t.caller, err = s.authenticate(in); err != nil {
		return t, err
	}
	t.id, t.tenant = Ephemeral, t.caller.Tenant()
	if err := t.caller.RequireType(access.Private); err != nil {
		return t, err
	}
	if err := t.caller.RequireSomewhere(access.TokenUse); err != nil {
		return t, err
	}
	chosen, err := s.settings(ctx, t.tenant)
	if err != nil {
		return t, err
	}
	if chosen.DisableEphemeralProxy {
		return t, errDisabled
	}
	t.destination, err = s.destinations.Check(given[0])
	return t, err
}

// authenticate finds the caller. Code that calls a proxy is known without a key.
func (s *Service) authenticate(in Incoming) (access.Caller, error) {
	c, err := in.Authenticate()
	if errors.Is(err, fault.Unauthenticated) && in.Header.Get(s.header(api.APIKey)) == "" {
		return access.Caller{}, ErrNoAPIKey
	}
	return c, err
}

// settings returns what a tenant has chosen.
func (s *Service) settings(ctx context.Context, tenant string) (chosen directory.Settings, err error) {
	err = s.store.View(ctx, tenant, func(tx store.Tx) error {
		row, err := tx.TenantRow(ctx)
		if err != nil {
			return err
		}
		chosen, err = directory.SettingsOf(row)
		return err
	})
	if errors.Is(err, store.ErrNoTenant) || errors.Is(err, store.ErrNotFound) {
		return chosen, errNoProxy
	}
	if err != nil {
		return chosen, fmt.Errorf("read tenant: %w", err)
	}
	return chosen, nil
}

// use gathers the tokens of a call: their values, or for a preview what the
// viewer may see of them. The call, or the preview, and every token are in the
// log when it returns.
func (s *Service) use(ctx context.Context, t *target, refs []expression.Reference) (used *token.Used, lookup expression.Lookup, err error) {
	if t.anonymous && len(refs) > 0 {
		if err := s.unmask(ctx, t); err != nil {
			return nil, nil, err
		}
	}
	if t.viewer != nil {
		lookup, t.previewed, err = s.tokens.Preview(ctx, *t.viewer, t.caller, refs)
		return nil, lookup, err
	}
	if used, err = s.tokens.Use(ctx, t.caller, token.User{Type: audit.Proxy, ID: t.id, Reactors: t.code.reactors}, refs); err != nil {
		return nil, nil, err
	}
	return used, used.Lookup(), nil
}

// unmask finds what an anonymous caller may use: what the proxy's application
// may, or where there is none, anything that the tenant does not forbid.
func (s *Service) unmask(ctx context.Context, t *target) error {
	if t.proxy.ApplicationID == "" {
		chosen, err := s.settings(ctx, t.tenant)
		if err == nil && chosen.DisableAnonymousDetokenization {
			err = errAnonymous
		}
		return err
	}
	holder, err := s.options.Acting(ctx, t.tenant, t.proxy.ApplicationID)
	if fault.Of(err).Kind() != fault.Internal {
		return fmt.Errorf("%w: %w", errNoHolder, err) // it has expired or is gone
	}
	if err != nil {
		return fmt.Errorf("find the application of a proxy: %w", err)
	}
	t.caller = holder.AsAnonymousProxy().WithOrigin(t.caller.Origin())
	return nil
}
