package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	createProxy    = row{method: "POST", path: "/proxies", keyed: true}
	listProxies    = row{method: "GET", path: "/proxies"}
	getProxy       = row{method: "GET", path: "/proxies/{id}"}
	replaceProxy   = row{method: "PUT", path: "/proxies/{id}", keyed: true}
	patchProxy     = row{method: "PATCH", path: "/proxies/{id}", media: api.MediaMergePatch, keyed: true}
	deleteProxy    = row{method: "DELETE", path: "/proxies/{id}"}
	previewProxy   = row{method: "POST", path: "/proxies/{id}/preview", reads: true}
	rotateProxyKey = row{method: "POST", path: "/proxies/{id}/rotate-key", keyed: true}
)

// Proxies are the destinations of a tenant.
type Proxies struct{ caller *caller }

// ProxyFilter chooses proxies. The zero value takes all.
type ProxyFilter struct {
	IDs  []string
	Name string // * stands for any run; without * a part of the name; case ignored
}

func (f ProxyFilter) query() url.Values { return named(f.IDs, f.Name) }

// Create makes a proxy with a key of its own. It takes proxy:create.
func (p Proxies) Create(ctx context.Context, in api.WriteProxy, options ...CallOption) (api.Proxy, error) {
	return get[api.Proxy](ctx, p.caller, request{row: createProxy, in: in}, options...)
}

// Get returns a proxy with its key. It takes proxy:read.
func (p Proxies) Get(ctx context.Context, id string) (api.Proxy, error) {
	return get[api.Proxy](ctx, p.caller, request{row: getProxy, ids: []string{id}})
}

// List goes through all proxies that the filter takes, newest first, and asks
// for pages as it goes. An error comes last. It takes proxy:read.
func (p Proxies) List(ctx context.Context, f ProxyFilter) iter.Seq2[api.Proxy, error] {
	return each(func(number int) (api.List[api.Proxy], error) {
		return p.Page(ctx, f, number, pageSize)
	}, func(x api.Proxy) string { return x.ID })
}

// Page returns one page of them, from 1. A size of 0 is the server's default.
func (p Proxies) Page(ctx context.Context, f ProxyFilter, number, size int) (api.List[api.Proxy], error) {
	return get[api.List[api.Proxy]](ctx, p.caller, request{row: listProxies, query: withPage(f.query(), number, size)})
}

// Replace changes everything but the key; what is left out returns to its
// default. Proxy.Write makes what was read into what is sent. It takes
// proxy:update.
func (p Proxies) Replace(ctx context.Context, id string, in api.WriteProxy, options ...CallOption) (api.Proxy, error) {
	return get[api.Proxy](ctx, p.caller, request{row: replaceProxy, ids: []string{id}, in: in}, options...)
}

// Patch changes a proxy by a merge patch: what is absent stays, what is null is
// removed. The application of a proxy without require_auth is removed by
// "application": null only. It takes proxy:update.
func (p Proxies) Patch(ctx context.Context, id string, patch any, options ...CallOption) error {
	return p.caller.call(ctx, request{row: patchProxy, ids: []string{id}, in: document{patch}}, nil, options)
}

// Delete removes a proxy. It takes proxy:delete.
func (p Proxies) Delete(ctx context.Context, id string) error {
	return p.caller.call(ctx, request{row: deleteProxy, ids: []string{id}}, nil, nil)
}

// RotateKey gives a proxy a new key, which is in the answer; the old one is dead
// at once. It takes proxy:update.
func (p Proxies) RotateKey(ctx context.Context, id string, options ...CallOption) (api.Proxy, error) {
	return get[api.Proxy](ctx, p.caller, request{row: rotateProxyKey, ids: []string{id}}, options...)
}

// Preview shows the request that a call would send, with placeholders in place
// of the values of tokens, or masks of those that the caller may itself read.
// Nothing is sent and no code runs. It takes proxy:read.
func (p Proxies) Preview(ctx context.Context, id string, in api.PreviewProxy) (api.ProxyPreview, error) {
	return get[api.ProxyPreview](ctx, p.caller, request{row: previewProxy, ids: []string{id}, in: in})
}
