package client

import (
	"context"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	tryReactor          = row{method: "POST", path: "/reactors/try"}
	listReactorVersions = row{method: "GET", path: "/reactors/{id}/versions"}
	restoreReactor      = row{method: "POST", path: "/reactors/{id}/versions/{n}/restore", keyed: true}
	listProxyVersions   = row{method: "GET", path: "/proxies/{id}/versions"}
	restoreProxy        = row{method: "POST", path: "/proxies/{id}/versions/{n}/restore", keyed: true}
)

// Try runs code that is not saved, once. It takes reactor:update and, for code
// with an application or tokens among its arguments, token:use. What is wrong
// with the code is a part of the result.
func (r Reactors) Try(ctx context.Context, in api.TryReactor) (api.Trial, error) {
	return get[api.Trial](ctx, r.caller, request{row: tryReactor, in: in})
}

// Versions returns the last versions of a reactor's code, newest first. It takes
// reactor:read.
func (r Reactors) Versions(ctx context.Context, id string) ([]api.CodeVersion, error) {
	return get[[]api.CodeVersion](ctx, r.caller, request{row: listReactorVersions, ids: []string{id}})
}

// Restore gives a reactor the code of a version. It takes reactor:update.
func (r Reactors) Restore(ctx context.Context, id, number string, options ...CallOption) (api.Reactor, error) {
	return get[api.Reactor](ctx, r.caller, request{row: restoreReactor, ids: []string{id, number}}, options...)
}

// Versions returns the last versions of a proxy's code, newest first. It takes
// proxy:read.
func (p Proxies) Versions(ctx context.Context, id string) ([]api.CodeVersion, error) {
	return get[[]api.CodeVersion](ctx, p.caller, request{row: listProxyVersions, ids: []string{id}})
}

// Restore gives a proxy the code of a version. It takes proxy:update.
func (p Proxies) Restore(ctx context.Context, id, number string, options ...CallOption) (api.Proxy, error) {
	return get[api.Proxy](ctx, p.caller, request{row: restoreProxy, ids: []string{id, number}}, options...)
}
