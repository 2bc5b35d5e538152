package endpoint

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// handler does what a row is for and returns the response. The attempt is nil
// unless the row is Idempotent and the request carries a key that counts.
type handler func(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error)

// once makes an idempotent handler: of all requests with one idempotency key
// one takes effect, and the others get its response.
func (s Services) once(route httpapi.Route, handle handler) handler {
	entity := entityOf(route)
	return func(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
		key, err := httpapi.IdempotencyKey(r)
		if err != nil {
			return nil, err
		}
		if key == "" {
			return handle(r, c, nil)
		}
		request := idempotency.Request{
			Method: r.Method, Path: strings.TrimSuffix(r.URL.EscapedPath(), "/"), Key: key, Require: route.Require, Entity: entity,
		}
		if idempotency.SharesKey(c) {
			if request.Body, err = httpapi.PeekBody(r); err != nil {
				return nil, err
			}
		}
		earlier, attempt, err := s.Idempotency.Begin(r.Context(), c, request)
		switch {
		case err != nil:
			return nil, err
		case earlier != nil:
			return replay(c, earlier)
		case attempt == nil: // the key does not count
			return handle(r, c, nil)
		}
		return attempted(r, c, attempt, handle)
	}
}

// attempted runs a handler under an idempotency key.
func attempted(r *http.Request, c access.Caller, attempt *idempotency.Attempt, handle handler) (*response.Response, error) {
	// A mark that cannot be removed frees its key by itself.
	defer func() { _ = attempt.Release(r.Context()) }()
	out, err := handle(r, c, attempt)
	if errors.Is(err, fault.Conflict) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) {
		// Another node was faster with the same key, if there is a response.
		// It may also be its effect that this request ran into: an id that
		// is taken, a nonce that is used.
		earlier, lookErr := attempt.Find(r.Context())
		switch {
		case lookErr != nil:
			return nil, lookErr
		case earlier != nil:
			return replay(c, earlier)
		}
	}
	return out, err
}

// entityOf returns the type of entity that an idempotent row is about. It panics
// when a replay of the row would take nothing of its caller, which is a mistake
// in the program.
func entityOf(row httpapi.Route) string {
	switch {
	case row.Auth == httpapi.PublicKey || row.Auth == httpapi.PrivateKey:
		return audit.Session
	case row.Auth == httpapi.APIKey && row.Permission != 0:
		return row.Permission.Entity()
	}
	panic("endpoint: an idempotent row that takes nothing of its caller")
}

// replayWeight is how many bytes of memory are charged for each byte of a stored
// response: what is sealed, and what is sent.
const replayWeight = 2

// replay returns a stored response, which the caller may have: idempotency has
// decided and logged that.
func replay(c access.Caller, earlier *response.Response) (*response.Response, error) {
	if err := errors.Join(c.ChargeTokens(len(earlier.Tokens)), c.ChargeMemory(replayWeight*int64(len(earlier.Body)))); err != nil {
		return nil, err
	}
	earlier.Replayed = true
	return earlier, nil
}

// respond encodes a response, so that what is stored is what is sent.
func respond(status int, v any) (*response.Response, error) {
	body, err := httpapi.Encode(v)
	if err != nil {
		return nil, err
	}
	return &response.Response{Status: status, Body: body}, nil
}

// aboutTokens is respond for a response that shows tokens.
func aboutTokens(shown []access.Shown, status int, location string, v any) (*response.Response, error) {
	out, err := respond(status, v)
	if err != nil {
		return nil, err
	}
	out.Location, out.Tokens = location, shown
	return out, nil
}

// about is respond for a response about something else.
func about(entityType, id string, status int, location string, v any) (*response.Response, error) {
	out, err := respond(status, v)
	if err != nil {
		return nil, err
	}
	out.Location, out.Entity = location, access.Entity{Type: entityType, ID: id}
	return out, nil
}

// done is a response without a body about something that was changed.
func done(entityType, id string, status int) (*response.Response, error) {
	return &response.Response{Status: status, Entity: access.Entity{Type: entityType, ID: id}}, nil
}

// effect runs a change of a service and shows its result. The response is kept
// as the last step of the service's own transaction.
func effect[T any](ctx context.Context, a *idempotency.Attempt, show func(T) (*response.Response, error), run func(last ...store.Step[T]) (T, error)) (*response.Response, error) {
	if a == nil {
		result, err := run()
		if err != nil {
			return nil, err
		}
		return show(result)
	}
	var out *response.Response
	_, err := run(func(tx store.Tx, result T) (err error) {
		if out, err = show(result); err != nil {
			return err
		}
		return a.Keep(ctx, tx, *out, nil)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
