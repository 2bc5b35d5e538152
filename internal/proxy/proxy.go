// Package proxy keeps proxies, a tenant's destinations, and forwards requests
// to them with the values of tokens in place of expressions.
//
// It promises that what a destination receives is what was authorized: one
// request, to the destination of the definition, whose body holds the values
// of tokens that the caller may use, each of them in the log before it leaves.
// Values are encoded for the body that they stand in and are never evaluated
// again. It never forwards keys or headers of the service, in either direction,
// never evaluates headers, paths or queries, and never logs any of them.
package proxy

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

var errNoProxy = fault.New(fault.NotFound, "no such proxy")

var kind = definition.Kind{
	Row: store.DefinitionProxy, Entity: audit.Proxy, Absent: errNoProxy,
	Create: access.ProxyCreate, Read: access.ProxyRead, Update: access.ProxyUpdate, Delete: access.ProxyDelete,
	Anonymous: func(contents jsonvalue.Value) bool { return !requireAuth(contents) },
}

// Destinations is the way out: *egress.Egress, and in tests what stands for it.
type Destinations interface {
	// Check judges a URL and gives its normal form, without looking anything up.
	Check(raw string) (*url.URL, error)
	// Transport sends the requests of one tenant and follows no redirects.
	Transport(tenant string, firstByte time.Duration) http.RoundTripper
}

// Scripts runs transforms: *script.Runner, and in tests what stands for it.
type Scripts interface {
	Run(ctx context.Context, p script.Program, c script.Call) (script.Outcome, error)
	Check(ctx context.Context, f *fault.Fields, tenant, path, code string, maxLength int) error
}

// Options are the settings of a Service.
type Options struct {
	Now          func() time.Time // default time.Now
	MaxBody      int              // bytes of a body that is looked into, also once expanded; default 5 MiB
	HeaderPrefix string           // of the service's own headers
	Environment  string           // in the keys of proxies
	// FirstByte is how long a destination may take to answer; 0 is the default
	// of the way out.
	FirstByte time.Duration
	// Acting finds what an application may do now.
	Acting func(ctx context.Context, tenant, application string) (access.Caller, error)
	// Reactor finds the code of a reactor of the tenant, as it is now.
	Reactor func(ctx context.Context, tenant, id string) (script.Deployed, error)
}

// Service keeps proxies and forwards requests. Its methods are safe for
// concurrent use.
type Service struct {
	definitions  *definition.Service[Proxy]
	store        store.Store
	tokens       *token.Service
	scripts      Scripts
	destinations Destinations
	options      Options
}

// New returns the service.
func New(s store.Store, ring *keyring.Ring, tokens *token.Service, scripts Scripts, destinations Destinations, o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 5 << 20
	}
	o.HeaderPrefix = strings.ToUpper(o.HeaderPrefix)
	return &Service{
		definitions: definition.New(kind, s, ring, o.Now, keyIn, asProxy),
		store:       s, tokens: tokens, scripts: scripts, destinations: destinations, options: o,
	}
}

// HeaderPrefix is the prefix of the service's own headers.
func (s *Service) HeaderPrefix() string { return s.options.HeaderPrefix }

// Proxy is a proxy as its management sees it.
type Proxy struct{ definition.Definition }

func asProxy(d definition.Definition) Proxy { return Proxy{d} }

// Create adds a proxy, with a key of its own.
func (s *Service) Create(ctx context.Context, c access.Caller, in jsonvalue.Value, last ...store.Step[Proxy]) (Proxy, error) {
	if err := c.Require(access.ProxyCreate); err != nil {
		return Proxy{}, err
	}
	d, _, err := s.checked(ctx, c, in)
	if err != nil {
		return Proxy{}, err
	}
	if d.Contents, err = s.withNewKey(c.Tenant(), d.Contents); err != nil {
		return Proxy{}, err
	}
	return s.definitions.Create(ctx, c, d, last...)
}

func (s *Service) withNewKey(tenant string, contents jsonvalue.Value) (jsonvalue.Value, error) {
	key, err := access.NewKey(rand.Reader, s.options.Environment, access.ProxyKey, tenant)
	if err != nil {
		return contents, err
	}
	return contents.With(memberKey, jsonvalue.NewString(key.Text().Reveal())), nil
}

// keyIn returns the key in the contents of a proxy.
func keyIn(contents jsonvalue.Value) secret.Text {
	key, _ := contents.Get(memberKey)
	return secret.NewText(key.Reveal())
}

// Get returns a proxy.
func (s *Service) Get(ctx context.Context, c access.Caller, id string) (Proxy, error) {
	return s.definitions.Get(ctx, c, id)
}

// List returns a page of proxies, newest first, and how many match in all.
func (s *Service) List(ctx context.Context, c access.Caller, f definition.Filter, page store.Page) ([]Proxy, int64, error) {
	return s.definitions.List(ctx, c, f, page)
}

// Delete removes a proxy. Its key opens nothing from then on.
func (s *Service) Delete(ctx context.Context, c access.Caller, id string) error {
	return s.definitions.Delete(ctx, c, id)
}

// Replace changes all of a proxy but its key: what is left out returns to its
// default. The application of a proxy without require_auth is removed only by
// "application": null.
func (s *Service) Replace(ctx context.Context, c access.Caller, id string, in jsonvalue.Value, last ...store.Step[Proxy]) (Proxy, error) {
	if err := c.Require(access.ProxyUpdate); err != nil {
		return Proxy{}, err
	}
	d, choice, err := s.checked(ctx, c, in)
	if err != nil {
		return Proxy{}, err
	}
	return s.definitions.Change(ctx, c, id, audit.Update, func(old Proxy) (definition.Draft, error) {
		var f fault.Fields
		checkRemoval(&f, old, d, choice)
		return keepKey(d, old), f.Err()
	}, last...)
}

// Patch changes a proxy by a merge patch of its wire form. The application of a
// proxy without require_auth is removed only by "application": null.
func (s *Service) Patch(ctx context.Context, c access.Caller, id string, patch jsonvalue.Value, last ...store.Step[Proxy]) (Proxy, error) {
	if err := c.Require(access.ProxyUpdate); err != nil {
		return Proxy{}, err
	}
	if patch.Kind() != jsonvalue.Object {
		return Proxy{}, definition.ErrNotObject
	}
	patch, err := s.checkedPatch(ctx, c.Tenant(), patch)
	if err != nil {
		return Proxy{}, err
	}
	return s.definitions.Change(ctx, c, id, audit.Update, func(old Proxy) (definition.Draft, error) {
		merged, err := jsonvalue.MergePatch(definition.WireForm(old.Definition).Without(memberKey), definition.WithoutApplication(patch))
		if err != nil {
			return definition.Draft{}, err
		}
		var f fault.Fields
		choice := definition.PatchedApplication(&f, patch)
		d := s.draft(&f, merged).Patched(old.Definition, choice)
		checkRemoval(&f, old, d, choice)
		if err := checkReactors(c, d); err != nil {
			return d, err
		}
		return keepKey(d, old), f.Err()
	}, last...)
}

// RotateKey gives a proxy a new key. The old one opens nothing from then on.
func (s *Service) RotateKey(ctx context.Context, c access.Caller, id string, last ...store.Step[Proxy]) (Proxy, error) {
	if err := c.Require(access.ProxyUpdate); err != nil {
		return Proxy{}, err
	}
	fresh, err := s.withNewKey(c.Tenant(), definition.EmptyObject)
	if err != nil {
		return Proxy{}, err
	}
	key, _ := fresh.Get(memberKey)
	return s.definitions.Change(ctx, c, id, audit.Rotate, func(old Proxy) (definition.Draft, error) {
		d := definition.Draft{Name: old.Name, ApplicationID: old.ApplicationID, Contents: old.Contents.With(memberKey, key), Reactors: map[string]string{}}
		for _, member := range reactors {
			if id := definition.Member(old.Contents, member); id != "" {
				d.Reactors[member] = id
			}
		}
		return d, nil
	}, last...)
}
