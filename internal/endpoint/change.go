package endpoint

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
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

// once makes a handler of a change: of all requests with one idempotency key
// one takes effect, and the others get its answer.
func (s Services) once(do change) handler {
	return func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
		key, err := httpapi.IdempotencyKey(r)
		if err != nil {
			return err
		}
		if key == "" {
			answer, err := do(r, c, nil)
			if err != nil {
				return err
			}
			return write(w, answer)
		}
		earlier, attempt, err := s.Idempotency.Begin(r.Context(), c, r.Method, strings.TrimSuffix(r.URL.EscapedPath(), "/"), key)
		if err != nil {
			return err
		}
		if earlier != nil {
			return replay(w, r, *earlier)
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
				return replay(w, r, *earlier)
			}
		}
		if err != nil {
			return err
		}
		return write(w, answer)
	}
}

func replay(w http.ResponseWriter, r *http.Request, a idempotency.Answer) error {
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
