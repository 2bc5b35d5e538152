package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	createApplication  = row{method: "POST", path: "/applications", keyed: true}
	listApplications   = row{method: "GET", path: "/applications"}
	getOwnApplication  = row{method: "GET", path: "/applications/key"}
	getApplication     = row{method: "GET", path: "/applications/{id}"}
	replaceApplication = row{method: "PUT", path: "/applications/{id}", keyed: true}
	deleteApplication  = row{method: "DELETE", path: "/applications/{id}"}
	regenerateKey      = row{method: "POST", path: "/applications/{id}/regenerate", keyed: true}

	createKey = row{method: "POST", path: "/applications/{id}/keys", keyed: true}
	listKeys  = row{method: "GET", path: "/applications/{id}/keys"}
	getKey    = row{method: "GET", path: "/applications/{id}/keys/{key_id}"}
	deleteKey = row{method: "DELETE", path: "/applications/{id}/keys/{key_id}"}

	listPermissions = row{method: "GET", path: "/permissions"}
)

// Applications are the callers of a tenant.
type Applications struct{ caller *caller }

// ApplicationFilter chooses applications. The zero value takes all.
type ApplicationFilter struct {
	IDs   []string
	Types []string // "public", "private", "management"
}

func (f ApplicationFilter) query() url.Values {
	q := url.Values{}
	for _, id := range f.IDs {
		q.Add("id", id)
	}
	for _, t := range f.Types {
		q.Add("type", t)
	}
	return q
}

// Create makes an application. Its key is in the answer and nowhere else. It
// takes application:create.
func (a Applications) Create(ctx context.Context, in api.CreateApplication, options ...CallOption) (api.Application, error) {
	return get[api.Application](ctx, a.caller, request{row: createApplication, in: in}, options...)
}

// Get returns an application. It takes application:read.
func (a Applications) Get(ctx context.Context, id string) (api.Application, error) {
	return get[api.Application](ctx, a.caller, request{row: getApplication, ids: []string{id}})
}

// Own returns the application that the client's key belongs to. Any key will do.
func (a Applications) Own(ctx context.Context) (api.Application, error) {
	return get[api.Application](ctx, a.caller, request{row: getOwnApplication})
}

// List goes through all applications that the filter takes, newest first, and
// asks for pages as it goes. An error comes last. It takes application:read.
func (a Applications) List(ctx context.Context, f ApplicationFilter) iter.Seq2[api.Application, error] {
	return each(func(number int) (api.List[api.Application], error) {
		return a.Page(ctx, f, number, pageSize)
	}, func(a api.Application) string { return a.ID })
}

// Page returns one page of them, from 1. A size of 0 is the server's default.
func (a Applications) Page(ctx context.Context, f ApplicationFilter, number, size int) (api.List[api.Application], error) {
	return get[api.List[api.Application]](ctx, a.caller, request{row: listApplications, query: withPage(f.query(), number, size)})
}

// Replace changes everything but the type and the keys; what is left out
// returns to its default. It takes application:update.
func (a Applications) Replace(ctx context.Context, id string, in api.ReplaceApplication, options ...CallOption) (api.Application, error) {
	return get[api.Application](ctx, a.caller, request{row: replaceApplication, ids: []string{id}, in: in}, options...)
}

// Delete removes an application with its keys. It takes application:delete.
// When an answer was lost on the way, a retry finds nothing: then ErrNotFound
// means that the application is gone.
func (a Applications) Delete(ctx context.Context, id string) error {
	return a.caller.call(ctx, request{row: deleteApplication, ids: []string{id}}, nil, nil)
}

// Regenerate gives an application one new key, which is in the answer and
// nowhere else, and revokes all others. It takes application:update.
func (a Applications) Regenerate(ctx context.Context, id string, options ...CallOption) (api.Application, error) {
	return get[api.Application](ctx, a.caller, request{row: regenerateKey, ids: []string{id}}, options...)
}

// Keys are the keys of applications.
type Keys struct{ caller *caller }

// Create gives an application one more key, which is in the answer and nowhere
// else. It takes application:update, and ErrConflict means that there are three.
func (k Keys) Create(ctx context.Context, application string, options ...CallOption) (api.Key, error) {
	return get[api.Key](ctx, k.caller, request{row: createKey, ids: []string{application}}, options...)
}

// List returns the keys of an application, oldest first. It takes application:read.
func (k Keys) List(ctx context.Context, application string) ([]api.Key, error) {
	return get[[]api.Key](ctx, k.caller, request{row: listKeys, ids: []string{application}})
}

// Get returns what is known of a key. It takes application:read.
func (k Keys) Get(ctx context.Context, application, id string) (api.Key, error) {
	return get[api.Key](ctx, k.caller, request{row: getKey, ids: []string{application, id}})
}

// Delete revokes a key; one that is gone already is no error. It takes
// application:update.
func (k Keys) Delete(ctx context.Context, application, id string) error {
	return k.caller.call(ctx, request{row: deleteKey, ids: []string{application, id}}, nil, nil)
}

// Permissions are what applications may hold.
type Permissions struct{ caller *caller }

// List returns the permissions for applications of a type, or all of them for
// the type "". Any key will do.
func (p Permissions) List(ctx context.Context, applicationType string) ([]api.Permission, error) {
	q := url.Values{}
	if applicationType != "" {
		q.Set("application_type", applicationType)
	}
	return get[[]api.Permission](ctx, p.caller, request{row: listPermissions, query: q})
}
