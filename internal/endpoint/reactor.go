package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/jsonvalue"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/script"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// reactorOf is a reactor as it is written. Its code and configuration stay raw
// values: they are sent back as they came.
func reactorOf(d reactor.Reactor) api.Reactor {
	out := api.Reactor{
		ID: d.ID, TenantID: d.TenantID, Name: d.Name, Code: reactor.Code(d), Configuration: configurationOf(reactor.Configuration(d)),
		State: "active", // tools that deploy reactors wait for it; here a reactor runs once it is stored
		Made:  madeOfDefinition(d.Definition),
	}
	if d.ApplicationID != "" {
		out.Application = &api.ApplicationRef{ID: d.ApplicationID}
	}
	return out
}

func configurationOf(v jsonvalue.Value) map[string]string {
	out := make(map[string]string, v.Len())
	for name, value := range v.Members() {
		out[name] = value.Reveal()
	}
	return out
}

func madeOfDefinition(d definition.Definition) api.Made {
	return api.Made{
		CreatedBy: d.CreatedBy, CreatedAt: api.Time{Time: d.CreatedAt}, ModifiedBy: d.ModifiedBy, ModifiedAt: api.Time{Time: d.ModifiedAt},
	}
}

// definitionFilterOf reads the filters that lists of definitions share.
func definitionFilterOf(q map[string][]string) definition.Filter {
	f := definition.Filter{IDs: q["id"]}
	if names := q["name"]; len(names) > 0 {
		f.Name = names[0]
	}
	return f
}

func (s Services) createReactor(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(d reactor.Reactor) (*response.Response, error) {
		return about(audit.Reactor, d.ID, http.StatusCreated, "/reactors/"+d.ID, reactorOf(d))
	}, func(last ...store.Step[reactor.Reactor]) (reactor.Reactor, error) {
		return s.Reactors.Create(r.Context(), c, in, last...)
	})
}

func (s Services) getReactor(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	d, err := s.Reactors.Get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, reactorOf(d))
}

func (s Services) listReactors(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(q url.Values, page store.Page) ([]reactor.Reactor, int64, error) {
		return s.Reactors.List(r.Context(), c, definitionFilterOf(q), page)
	}, reactorOf)
}

func (s Services) replaceReactor(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(d reactor.Reactor) (*response.Response, error) {
		return about(audit.Reactor, d.ID, http.StatusOK, "", reactorOf(d))
	}, func(last ...store.Step[reactor.Reactor]) (reactor.Reactor, error) {
		return s.Reactors.Replace(r.Context(), c, r.PathValue("id"), in, last...)
	})
}

func (s Services) patchReactor(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	patch, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(d reactor.Reactor) (*response.Response, error) {
		return done(audit.Reactor, d.ID, http.StatusNoContent)
	}, func(last ...store.Step[reactor.Reactor]) (reactor.Reactor, error) {
		return s.Reactors.Patch(r.Context(), c, r.PathValue("id"), patch, last...)
	})
}

func (s Services) deleteReactor(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := s.Reactors.Delete(r.Context(), c, r.PathValue("id")); err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}

// react runs a reactor. What code does outside cannot be undone, so a request
// with an idempotency key is marked before the code runs.
// invocationOf takes no body for an empty one: everything in it is optional,
// and some clients then send none.
func invocationOf(r *http.Request) (reactor.Invocation, error) {
	in, err := bodyOf(r)
	if errors.Is(err, httpapi.ErrNoBody) {
		return reactor.Invocation{}, nil
	}
	if err != nil {
		return reactor.Invocation{}, err
	}
	return reactor.ParseInvocation(in)
}

func (s Services) react(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	invocation, err := invocationOf(r)
	if err != nil {
		return nil, err
	}
	if invocation.Callback != "" {
		return s.start(r, c, a, invocation, func(string) (*response.Response, error) {
			return about(audit.Reactor, r.PathValue("id"), http.StatusAccepted, "", struct{}{}) // clients fail on an empty body
		})
	}
	ctx := r.Context()
	var last []func(store.Tx, reactor.Response, *keyring.EpochKey) error
	if a != nil {
		if err := a.Hold(ctx); err != nil {
			return nil, err
		}
		// Whoever comes again under the key is to find this answer: the code
		// does not stop in the middle because the line broke.
		ctx = context.WithoutCancel(ctx)
		last = append(last, func(tx store.Tx, out reactor.Response, epoch *keyring.EpochKey) error {
			kept, err := responseOf(r.PathValue("id"), out)
			if err != nil {
				return err
			}
			return a.Keep(ctx, tx, *kept, epoch)
		})
	}
	out, err := s.Reactors.React(ctx, c, r.PathValue("id"), invocation, last...)
	httpapi.NoteRun(r.Context(), out.RunID)
	if err != nil {
		return nil, err
	}
	return responseOf(r.PathValue("id"), out)
}

// reactAsync accepts a run whose result is kept until it is asked for.
func (s Services) reactAsync(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	invocation, err := invocationOf(r)
	if err != nil {
		return nil, err
	}
	invocation.Callback = "" // the result is asked for
	return s.start(r, c, a, invocation, func(request string) (*response.Response, error) {
		return about(audit.Reactor, r.PathValue("id"), http.StatusAccepted, "/reactors/"+url.PathEscape(r.PathValue("id"))+"/results/"+request, api.AsyncReactor{AsyncReactorRequestID: request})
	})
}

func (s Services) start(r *http.Request, c access.Caller, a *idempotency.Attempt, in reactor.Invocation, show func(string) (*response.Response, error)) (*response.Response, error) {
	return effect(r.Context(), a, show, func(last ...store.Step[string]) (string, error) {
		return s.Reactors.Start(r.Context(), c, r.PathValue("id"), in, last...)
	})
}

func (s Services) getResult(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	status, body, err := s.Reactors.Result(r.Context(), c, r.PathValue("id"), r.PathValue("request_id"))
	if err != nil {
		return nil, err
	}
	return &response.Response{Status: status, Body: orEmpty(body)}, nil
}

func (s Services) listRuns(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(_ url.Values, page store.Page) ([]reactor.Run, int64, error) {
		return s.Reactors.Runs(r.Context(), c, r.PathValue("id"), page)
	}, func(run reactor.Run) api.Run {
		return api.Run{
			ID: run.ID, RequestID: run.RequestID, StartedAt: api.Time{Time: run.StartedAt}, TookMicroseconds: run.Took.Microseconds(),
			MemoryBytes: run.Memory, Failed: run.Failed, Console: orEmpty(run.Console),
		}
	})
}

// responseOf is the response to a run of a reactor: about the tokens that the
// code got or made, or else about the reactor.
func responseOf(id string, out reactor.Response) (shown *response.Response, err error) {
	if out.Custom != nil {
		shown = customResponse(out.Custom)
	} else if shown, err = respond(http.StatusOK, raw(out.Object())); err != nil {
		return nil, err
	}
	shown.Tokens, shown.Entity = out.Shown, access.Entity{Type: audit.Reactor, ID: id}
	return shown, nil
}

// customResponse is a response that code gave by itself. A text is sent as it
// is, anything else as JSON.
func customResponse(c *script.Custom) *response.Response {
	headers := make(map[string]string, len(c.Headers)+1)
	typed := false
	for name, value := range c.Headers {
		headers[name] = value
		typed = typed || http.CanonicalHeaderKey(name) == "Content-Type"
	}
	body := []byte(c.Body)
	var text string
	switch {
	case len(body) == 0 || jsontext.Value(body).Kind() == jsontext.KindNull:
		body = nil
	case json.Unmarshal(body, &text) == nil:
		if body = []byte(text); !typed {
			headers["Content-Type"] = "text/plain; charset=utf-8"
		}
	case !typed:
		headers["Content-Type"] = api.MediaJSON
	}
	return &response.Response{Status: c.Status, Headers: headers, Body: body}
}
