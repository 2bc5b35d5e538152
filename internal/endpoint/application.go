package endpoint

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// orEmpty makes a list that is written as [] rather than left out.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func applicationOf(a directory.Application) api.Application {
	out := api.Application{
		ID: a.ID, TenantID: a.TenantID, Name: a.Name, Type: string(a.Type), Permissions: orEmpty(a.Permissions), Rules: orEmpty(a.Rules),
		Keys: []api.Key{}, Key: a.Key.Reveal(), ExpiresAt: api.Time{Time: a.ExpiresAt}, AllowedOrigins: a.AllowedOrigins, Made: madeOf(a.Made),
	}
	for _, k := range a.Keys {
		out.Keys = append(out.Keys, keyOf(k))
	}
	return out
}

func keyOf(k directory.Key) api.Key {
	return api.Key{
		ID: k.ID, Version: strconv.Itoa(k.Version), Prefix: k.Prefix, Key: k.Text.Reveal(), CreatedBy: k.CreatedBy, CreatedAt: api.Time{Time: k.CreatedAt},
	}
}

func (s Services) createApplication(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	var in api.CreateApplication
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(made directory.Application) (*response.Response, error) {
		return about(audit.Application, made.ID, http.StatusCreated, "/applications/"+made.ID, applicationOf(made))
	}, func(last ...store.Step[directory.Application]) (directory.Application, error) {
		return s.Directory.CreateApplication(r.Context(), c, directory.NewApplication{
			Name: in.Name, Type: in.Type, Permissions: in.Permissions, Rules: in.Rules, ExpiresAt: in.ExpiresAt.Time,
			AllowedOrigins: in.AllowedOrigins, WithoutKey: in.CreateKey != nil && !*in.CreateKey,
		}, last...)
	})
}

func showApplication(a directory.Application) (*response.Response, error) {
	return about(audit.Application, a.ID, http.StatusOK, "", applicationOf(a))
}

func (s Services) listApplications(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(q url.Values, page store.Page) ([]directory.Application, int64, error) {
		return s.Directory.Applications(r.Context(), c, store.ApplicationFilter{IDs: q["id"], Types: q["type"]}, page)
	}, applicationOf)
}

func (s Services) getApplication(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	a, err := s.Directory.Application(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, applicationOf(a))
}

func (s Services) getOwnApplication(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	a, err := s.Directory.Own(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, applicationOf(a))
}

func (s Services) replaceApplication(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	var in api.ReplaceApplication
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	return effect(r.Context(), a, showApplication, func(last ...store.Step[directory.Application]) (directory.Application, error) {
		return s.Directory.ReplaceApplication(r.Context(), c, r.PathValue("id"), directory.NewApplication{
			Name: in.Name, Type: in.Type, Permissions: in.Permissions, Rules: in.Rules, ExpiresAt: in.ExpiresAt.Time,
			AllowedOrigins: in.AllowedOrigins,
		}, last...)
	})
}

func (s Services) deleteApplication(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := s.Directory.DeleteApplication(r.Context(), c, r.PathValue("id")); err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}

func (s Services) regenerateKey(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	return effect(r.Context(), a, showApplication, func(last ...store.Step[directory.Application]) (directory.Application, error) {
		return s.Directory.Regenerate(r.Context(), c, r.PathValue("id"), last...)
	})
}

func (s Services) createKey(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	id := r.PathValue("id")
	return effect(r.Context(), a, func(k directory.Key) (*response.Response, error) {
		return about(audit.Key, k.ID, http.StatusCreated, "/applications/"+url.PathEscape(id)+"/keys/"+k.ID, keyOf(k))
	}, func(last ...store.Step[directory.Key]) (directory.Key, error) {
		return s.Directory.CreateKey(r.Context(), c, id, last...)
	})
}

func (s Services) listKeys(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	list, err := s.Directory.Keys(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	out := make([]api.Key, 0, len(list))
	for _, k := range list {
		if !q.Has("id") || slices.Contains(q["id"], k.ID) {
			out = append(out, keyOf(k))
		}
	}
	return respond(http.StatusOK, out)
}

func (s Services) getKey(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	k, err := s.Directory.Key(r.Context(), c, r.PathValue("id"), r.PathValue("key_id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, keyOf(k))
}

func (s Services) deleteKey(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := s.Directory.DeleteKey(r.Context(), c, r.PathValue("id"), r.PathValue("key_id")); err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}

var errApplicationType = fault.Field("application_type", "must be public, private or management")

// listPermissions answers from the table of permissions: it tells nothing of a
// tenant, so any key will do and no entry is made.
func (s Services) listPermissions(r *http.Request, _ access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	var wanted access.ApplicationType
	if q.Has("application_type") {
		t, ok := access.ParseApplicationType(q.Get("application_type"))
		if !ok {
			return nil, errApplicationType
		}
		wanted = t
	}
	out := []api.Permission{}
	for _, p := range access.Permissions() {
		if types := p.ApplicationTypes(); wanted == "" || slices.Contains(types, wanted) {
			row := api.Permission{Type: p.String(), Description: p.Description()}
			for _, t := range types {
				row.ApplicationTypes = append(row.ApplicationTypes, string(t))
			}
			out = append(out, row)
		}
	}
	return respond(http.StatusOK, out)
}
