package client

import (
	"context"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	health = row{method: "GET", path: "/healthz", open: true}
	ready  = row{method: "GET", path: "/readyz", open: true}

	getTenant            = row{method: "GET", path: "/tenants/self"}
	replaceTenant        = row{method: "PUT", path: "/tenants/self", keyed: true}
	deleteTenant         = row{method: "DELETE", path: "/tenants/self"}
	getUsage             = row{method: "GET", path: "/tenants/self/reports/usage"}
	getCallbackSecret    = row{method: "GET", path: "/tenants/self/callback-secret"}
	rotateCallbackSecret = row{method: "POST", path: "/tenants/self/callback-secret", keyed: true}
)

// Health returns nil when the server is alive. It is asked once.
func (c *Client) Health(ctx context.Context) error {
	_, err := get[api.Health](ctx, c.caller, request{row: health})
	return err
}

// Ready returns nil when the server can do its work. It is asked once.
func (c *Client) Ready(ctx context.Context) error {
	_, err := get[api.Health](ctx, c.caller, request{row: ready})
	return err
}

// Tenant is about the tenant that the key belongs to.
type Tenant struct{ caller *caller }

// Get returns the tenant. It takes tenant:read.
func (t Tenant) Get(ctx context.Context) (api.Tenant, error) {
	return get[api.Tenant](ctx, t.caller, request{row: getTenant})
}

// Replace changes the name and the settings; settings that are left out
// return to their defaults. It takes tenant:update.
func (t Tenant) Replace(ctx context.Context, in api.ReplaceTenant, options ...CallOption) (api.Tenant, error) {
	return get[api.Tenant](ctx, t.caller, request{row: replaceTenant, in: in}, options...)
}

// Delete destroys the tenant with everything in it, and there is no way back.
// It takes tenant:delete. When an answer was lost on the way, a retry finds
// the key unknown: then ErrUnauthenticated means that the tenant is gone.
func (t Tenant) Delete(ctx context.Context) error {
	return t.caller.call(ctx, request{row: deleteTenant}, nil, nil)
}

// Usage counts the tenant's tokens. It takes report:read.
func (t Tenant) Usage(ctx context.Context) (api.Usage, error) {
	return get[api.Usage](ctx, t.caller, request{row: getUsage})
}

// CallbackSecret returns the secret that signs callbacks. It takes tenant:read.
func (t Tenant) CallbackSecret(ctx context.Context) (api.CallbackSecret, error) {
	return get[api.CallbackSecret](ctx, t.caller, request{row: getCallbackSecret})
}

// RotateCallbackSecret replaces it; the old one goes on signing for a day. It
// takes tenant:update.
func (t Tenant) RotateCallbackSecret(ctx context.Context, options ...CallOption) (api.CallbackSecret, error) {
	return get[api.CallbackSecret](ctx, t.caller, request{row: rotateCallbackSecret}, options...)
}
