package endpoint

import (
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (s Services) createSession(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	return effect(r.Context(), a, func(made directory.Session) (*response.Response, error) {
		return about(audit.Session, made.ID, http.StatusCreated, "", api.CreatedSession{
			SessionKey: made.Key.Reveal(), Nonce: made.Nonce.Reveal(), ExpiresAt: api.Time{Time: made.ExpiresAt},
		})
	}, func(last ...store.Step[directory.Session]) (directory.Session, error) {
		return s.Directory.CreateSession(r.Context(), c, last...)
	})
}

func (s Services) authorizeSession(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	var in api.AuthorizeSession
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(authorized directory.Session) (*response.Response, error) {
		return done(audit.Session, authorized.ID, http.StatusOK)
	}, func(last ...store.Step[directory.Session]) (directory.Session, error) {
		return s.Directory.AuthorizeSession(r.Context(), c, directory.Authorization{
			Nonce: secret.NewText(in.Nonce), Permissions: in.Permissions, Rules: in.Rules, ExpiresAt: in.ExpiresAt.Time, ApplicationID: in.ApplicationID,
		}, last...)
	})
}

func (s Services) listSessions(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(_ url.Values, page store.Page) ([]directory.Session, int64, error) {
		return s.Directory.Sessions(r.Context(), c, page)
	}, func(x directory.Session) api.Session {
		return api.Session{
			ID: x.ID, TenantID: x.TenantID, Prefix: x.Prefix, Permissions: orEmpty(x.Permissions), Rules: orEmpty(x.Rules),
			CreatedBy: x.CreatedBy, CreatedAt: api.Time{Time: x.CreatedAt}, AuthorizedBy: x.AuthorizedBy,
			AuthorizedAt: api.Time{Time: x.AuthorizedAt}, ExpiresAt: api.Time{Time: x.ExpiresAt},
		}
	})
}

func (s Services) deleteSession(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := s.Directory.DeleteSession(r.Context(), c, r.PathValue("id")); err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}
