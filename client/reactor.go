package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	createReactor    = row{method: "POST", path: "/reactors", keyed: true}
	listReactors     = row{method: "GET", path: "/reactors"}
	getReactor       = row{method: "GET", path: "/reactors/{id}"}
	replaceReactor   = row{method: "PUT", path: "/reactors/{id}", keyed: true}
	patchReactor     = row{method: "PATCH", path: "/reactors/{id}", media: api.MediaMergePatch, keyed: true}
	deleteReactor    = row{method: "DELETE", path: "/reactors/{id}"}
	react            = row{method: "POST", path: "/reactors/{id}/react", keyed: true, runs: true}
	reactAsync       = row{method: "POST", path: "/reactors/{id}/react-async", keyed: true}
	getReactorResult = row{method: "GET", path: "/reactors/{id}/results/{request_id}"}
	listReactorRuns  = row{method: "GET", path: "/reactors/{id}/runs"}
)

// Reactors are a tenant's own code on the server.
type Reactors struct{ caller *caller }

// ReactorFilter chooses reactors. The zero value takes all.
type ReactorFilter struct {
	IDs  []string
	Name string // * stands for any run; without * a part of the name; case ignored
}

func (f ReactorFilter) query() url.Values { return named(f.IDs, f.Name) }

// Create makes a reactor. It takes reactor:create.
func (r Reactors) Create(ctx context.Context, in api.WriteReactor, options ...CallOption) (api.Reactor, error) {
	return get[api.Reactor](ctx, r.caller, request{row: createReactor, in: in}, options...)
}

// Get returns a reactor with its code and configuration. It takes reactor:read.
func (r Reactors) Get(ctx context.Context, id string) (api.Reactor, error) {
	return get[api.Reactor](ctx, r.caller, request{row: getReactor, ids: []string{id}})
}

// List goes through all reactors that the filter takes, newest first, and asks
// for pages as it goes. An error comes last. It takes reactor:read.
func (r Reactors) List(ctx context.Context, f ReactorFilter) iter.Seq2[api.Reactor, error] {
	return each(func(number int) (api.List[api.Reactor], error) {
		return r.Page(ctx, f, number, pageSize)
	}, func(x api.Reactor) string { return x.ID })
}

// Page returns one page of them, from 1. A size of 0 is the server's default.
func (r Reactors) Page(ctx context.Context, f ReactorFilter, number, size int) (api.List[api.Reactor], error) {
	return get[api.List[api.Reactor]](ctx, r.caller, request{row: listReactors, query: withPage(f.query(), number, size)})
}

// Replace changes all of a reactor; what is left out returns to its default.
// Reactor.Write makes what was read into what is sent. It takes reactor:update.
func (r Reactors) Replace(ctx context.Context, id string, in api.WriteReactor, options ...CallOption) (api.Reactor, error) {
	return get[api.Reactor](ctx, r.caller, request{row: replaceReactor, ids: []string{id}, in: in}, options...)
}

// Patch changes a reactor by a merge patch after RFC 7386: a JSON object, as a
// map, a struct or json.RawMessage. In configuration null removes an entry. It
// takes reactor:update.
func (r Reactors) Patch(ctx context.Context, id string, patch any, options ...CallOption) error {
	return r.caller.call(ctx, request{row: patchReactor, ids: []string{id}, in: document{patch}}, nil, options)
}

// Delete removes a reactor. It takes reactor:delete. When an answer was lost on
// the way, a retry finds nothing: then ErrNotFound means that it is gone.
func (r Reactors) Delete(ctx context.Context, id string) error {
	return r.caller.call(ctx, request{row: deleteReactor, ids: []string{id}}, nil, nil)
}

// React runs a reactor and waits for what it returns; with a callback URL it
// only starts it. It takes token:use, also on each container of the tokens in
// the arguments.
//
// An error that the code threw is an *Error with the status that it chose. The
// code may have had effects by then, so React tries again only when the
// connection broke, under its idempotency key: then it gets the first answer.
func (r Reactors) React(ctx context.Context, id string, in api.React, options ...CallOption) (api.ReactorResponse, error) {
	return get[api.ReactorResponse](ctx, r.caller, request{row: react, ids: []string{id}, in: in}, options...)
}

// ReactAsync starts a run and returns the id of its result, which Result
// fetches with the same key for a day. It takes token:use as React does.
func (r Reactors) ReactAsync(ctx context.Context, id string, in api.React, options ...CallOption) (api.AsyncReactor, error) {
	return get[api.AsyncReactor](ctx, r.caller, request{row: reactAsync, ids: []string{id}, in: in}, options...)
}

// Result returns what a run came to, to the application or session that
// started it. ErrNotFound means that it has not ended, or was never started;
// a run that failed is an *Error with its status.
func (r Reactors) Result(ctx context.Context, id, requestID string) (api.ReactorResponse, error) {
	return get[api.ReactorResponse](ctx, r.caller, request{row: getReactorResult, ids: []string{id, requestID}})
}

// Runs goes through what is remembered of a reactor's last runs, newest first,
// with what they printed. An error comes last. It takes reactor:read.
func (r Reactors) Runs(ctx context.Context, id string) iter.Seq2[api.Run, error] {
	return each(func(number int) (api.List[api.Run], error) {
		return r.RunsPage(ctx, id, number, pageSize)
	}, func(x api.Run) string { return x.ID })
}

// RunsPage returns one page of them, from 1. A size of 0 is the server's default.
func (r Reactors) RunsPage(ctx context.Context, id string, number, size int) (api.List[api.Run], error) {
	return get[api.List[api.Run]](ctx, r.caller, request{row: listReactorRuns, ids: []string{id}, query: withPage(url.Values{}, number, size)})
}
