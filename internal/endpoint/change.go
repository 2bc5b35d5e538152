package endpoint

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// handler is what a row does.
type handler = func(w http.ResponseWriter, r *http.Request, c access.Caller) error

// change is what a row does whose answer is kept for requests with an
// idempotency key; a is nil for those without.
type change func(r *http.Request, c access.Caller, a *idempotency.Attempt) (idempotency.Answer, error)

// every makes a handler of a change that takes no idempotency key: every
// request takes effect.
func every(do change) handler {
	return func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
		answer, err := do(r, c, nil)
		if err != nil {
			return err
		}
		return write(w, answer)
	}
}

// once makes an idempotent row of a change: of all requests with one
// idempotency key one takes effect, and the others get its answer.
func (s Services) once(row httpapi.Route, do change) httpapi.Route {
	entity := entityOf(row)
	row.Idempotent = true
	row.Handle = func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
		key, err := httpapi.IdempotencyKey(r)
		if err != nil {
			return err
		}
		var attempt *idempotency.Attempt // nil when there is no key that counts
		if key != "" {
			request := idempotency.Request{
				Method: r.Method, Path: strings.TrimSuffix(r.URL.EscapedPath(), "/"), Key: key, Require: row.Require, Entity: entity,
			}
			if idempotency.SharesKey(c) {
				if request.Body, err = httpapi.PeekBody(r); err != nil {
					return err
				}
			}
			var earlier *idempotency.Answer
			earlier, attempt, err = s.Idempotency.Begin(r.Context(), c, request)
			if err != nil {
				return err
			}
			if earlier != nil {
				return replay(w, r, c, *earlier)
			}
		}
		if attempt == nil {
			return every(do)(w, r, c)
		}
		// A mark that cannot be removed frees its key by itself.
		defer func() { _ = attempt.Release(r.Context()) }()
		answer, err := do(r, c, attempt)
		if errors.Is(err, fault.Conflict) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrConflict) {
			// Another node was faster with the same key, if there is an answer.
			// It may also be its effect that this request ran into: an id that
			// is taken, a nonce that is used.
			if earlier, lookErr := attempt.Find(r.Context()); lookErr != nil || earlier != nil {
				if lookErr != nil {
					return lookErr
				}
				return replay(w, r, c, *earlier)
			}
		}
		if err != nil {
			return err
		}
		return write(w, answer)
	}
	return row
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
// answer: what is sealed, and what is sent.
const replayWeight = 2

// replay sends a stored answer, which the caller may have: idempotency has
// decided and logged that.
func replay(w http.ResponseWriter, r *http.Request, c access.Caller, a idempotency.Answer) error {
	if err := errors.Join(c.ChargeTokens(len(a.Tokens)), c.ChargeMemory(replayWeight*int64(len(a.Body)))); err != nil {
		return err
	}
	w.Header().Set(httpapi.HeaderName(r.Context(), api.IdempotentReplayed), "true")
	return write(w, a)
}

func write(w http.ResponseWriter, a idempotency.Answer) error {
	if a.Location != "" {
		w.Header().Set("Location", a.Location)
	}
	switch {
	case a.Headers != nil:
		httpapi.WriteForeign(w, a.Status, a.Headers, a.Body)
	case a.Body == nil:
		w.WriteHeader(a.Status)
	default:
		httpapi.WriteEncoded(w, a.Status, a.Body)
	}
	return nil
}

// answerOf encodes an answer, so that what is kept is what is sent.
func answerOf(status int, location string, v any) (idempotency.Answer, error) {
	body, err := httpapi.Encode(v)
	return idempotency.Answer{Status: status, Location: location, Body: body}, err
}

// aboutTokens is answerOf for an answer that shows tokens.
func aboutTokens(shown []access.Shown, status int, location string, v any) (idempotency.Answer, error) {
	answer, err := answerOf(status, location, v)
	answer.Tokens = shown
	return answer, err
}

// about is answerOf for an answer about something else.
func about(entityType, id string, status int, location string, v any) (idempotency.Answer, error) {
	answer, err := answerOf(status, location, v)
	answer.Entity = access.Entity{Type: entityType, ID: id}
	return answer, err
}

// done is an answer without a body about something that was changed.
func done(entityType, id string, status int) (idempotency.Answer, error) {
	return idempotency.Answer{Status: status, Entity: access.Entity{Type: entityType, ID: id}}, nil
}

// effect runs a change of a service and shows its result. The answer is kept
// as the last step of the service's own transaction.
func effect[T any](ctx context.Context, a *idempotency.Attempt, show func(T) (idempotency.Answer, error), run func(last ...store.Step[T]) (T, error)) (answer idempotency.Answer, err error) {
	if a == nil {
		result, err := run()
		if err != nil {
			return answer, err
		}
		return show(result)
	}
	_, err = run(func(tx store.Tx, result T) (err error) {
		if answer, err = show(result); err != nil {
			return err
		}
		return a.Keep(ctx, tx, answer, nil)
	})
	return answer, err
}
