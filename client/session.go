package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	createSession    = row{method: "POST", path: "/sessions", keyed: true}
	authorizeSession = row{method: "POST", path: "/sessions/authorize", keyed: true}
	listSessions     = row{method: "GET", path: "/sessions"}
	deleteSession    = row{method: "DELETE", path: "/sessions/{id}"}

	explainAccess = row{method: "POST", path: "/access/explain", reads: true}
	whoHasAccess  = row{method: "GET", path: "/access/who"}
)

// Sessions are short-lived keys, made for browsers.
type Sessions struct{ caller *caller }

// Create makes a session that may do nothing until it is authorized. Its key
// and its nonce are in the answer and nowhere else. It takes the key of a
// public application.
func (s Sessions) Create(ctx context.Context, options ...CallOption) (api.CreatedSession, error) {
	return get[api.CreatedSession](ctx, s.caller, request{row: createSession}, options...)
}

// Authorize gives the session of a nonce its rights, once. It takes the key of
// a private application, which can give no more than it has.
func (s Sessions) Authorize(ctx context.Context, in api.AuthorizeSession, options ...CallOption) error {
	return s.caller.call(ctx, request{row: authorizeSession, in: in}, nil, options)
}

// List goes through all live sessions, newest first, and asks for pages as it
// goes. An error comes last. It takes session:read.
func (s Sessions) List(ctx context.Context) iter.Seq2[api.Session, error] {
	return each(func(number int) (api.List[api.Session], error) {
		return s.Page(ctx, number, pageSize)
	}, func(x api.Session) string { return x.ID })
}

// Page returns one page of the live sessions.
func (s Sessions) Page(ctx context.Context, number, size int) (api.List[api.Session], error) {
	return get[api.List[api.Session]](ctx, s.caller, request{row: listSessions, query: withPage(url.Values{}, number, size)})
}

// Delete ends a session. It takes session:delete. When an answer was lost on
// the way, a retry finds nothing: then ErrNotFound means that the session is gone.
func (s Sessions) Delete(ctx context.Context, id string) error {
	return s.caller.call(ctx, request{row: deleteSession, ids: []string{id}}, nil, nil)
}

// Access tells who may do what, and why.
type Access struct{ caller *caller }

// Explain says whether a holder of rights may do something, by which rule, and
// why the rules before it did not decide. It takes application:read.
func (a Access) Explain(ctx context.Context, in api.ExplainAccess) (api.Explanation, error) {
	return get[api.Explanation](ctx, a.caller, request{row: explainAccess, in: in})
}

// Who goes through the applications and live sessions that could do something
// to some token in a container or below it. The container is "" for permissions
// that are not on tokens. It takes application:read.
func (a Access) Who(ctx context.Context, permission, container string) iter.Seq2[api.AccessHolder, error] {
	return each(func(number int) (api.List[api.AccessHolder], error) {
		return a.WhoPage(ctx, permission, container, number, pageSize)
	}, func(h api.AccessHolder) string { return h.Kind + "/" + h.ID })
}

// WhoOf goes through everybody who may do something to one token, with how much
// of it each is shown. It takes application:read.
func (a Access) WhoOf(ctx context.Context, permission, token string) iter.Seq2[api.AccessHolder, error] {
	return each(func(number int) (api.List[api.AccessHolder], error) {
		q := url.Values{"permission": {permission}, "token_id": {token}}
		return get[api.List[api.AccessHolder]](ctx, a.caller, request{row: whoHasAccess, query: withPage(q, number, pageSize)})
	}, func(h api.AccessHolder) string { return h.Kind + "/" + h.ID })
}

// WhoPage returns one page of them, from 1. A size of 0 is the server's default.
func (a Access) WhoPage(ctx context.Context, permission, container string, number, size int) (api.List[api.AccessHolder], error) {
	q := url.Values{"permission": {permission}}
	if container != "" {
		q.Set("container", container)
	}
	return get[api.List[api.AccessHolder]](ctx, a.caller, request{row: whoHasAccess, query: withPage(q, number, size)})
}
