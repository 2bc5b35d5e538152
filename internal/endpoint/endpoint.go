// Package endpoint is the table of the API: one row for each route, and the
// few lines behind each that translate between the wire and a service.
//
// It promises that what differs between two endpoints can be read off their
// rows. It decides nothing: permissions, rules and the log are the services',
// and it never opens a transaction.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/secret"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/token"
)

// Services are what the rows call.
type Services struct {
	Directory   *directory.Service
	Audit       *audit.Service
	Tokens      *token.Service
	Idempotency *idempotency.Service
	Reactors    *reactor.Service
	Proxies     *proxy.Service
}

// Routes returns the rows of the API.
func Routes(s Services) []httpapi.Route {
	const (
		anyKey     = ""
		publicKey  = "(public application key)"
		privateKey = "(private application key)"
	)
	rows := []httpapi.Route{
		{Pattern: "GET /tenants/self", Permission: "tenant:read", Handle: s.getTenant},
		{Pattern: "PUT /tenants/self", Permission: "tenant:update", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.replaceTenant)},
		{Pattern: "DELETE /tenants/self", Permission: "tenant:delete", Handle: s.deleteTenant},
		{Pattern: "GET /tenants/self/reports/usage", Permission: "report:read", Handle: s.getUsage},
		{Pattern: "GET /tenants/self/callback-secret", Permission: "tenant:read", Handle: s.getCallbackSecret},
		{Pattern: "POST /tenants/self/callback-secret", Permission: "tenant:update", Idempotent: true, Handle: s.once(s.rotateCallbackSecret)},

		{Pattern: "POST /applications", Permission: "application:create", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.createApplication)},
		{Pattern: "GET /applications", Permission: "application:read", Handle: s.listApplications},
		{Pattern: "GET /applications/key", Permission: anyKey, Handle: s.getOwnApplication},
		{Pattern: "GET /applications/{id}", Permission: "application:read", Handle: s.getApplication},
		{Pattern: "PUT /applications/{id}", Permission: "application:update", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.replaceApplication)},
		{Pattern: "DELETE /applications/{id}", Permission: "application:delete", Handle: s.deleteApplication},
		{Pattern: "POST /applications/{id}/regenerate", Permission: "application:update", Idempotent: true, Handle: s.once(s.regenerateKey)},
		{Pattern: "POST /applications/{id}/keys", Permission: "application:update", Idempotent: true, Handle: s.once(s.createKey)},
		{Pattern: "GET /applications/{id}/keys", Permission: "application:read", Handle: s.listKeys},
		{Pattern: "GET /applications/{id}/keys/{key_id}", Permission: "application:read", Handle: s.getKey},
		{Pattern: "DELETE /applications/{id}/keys/{key_id}", Permission: "application:update", Handle: s.deleteKey},

		{Pattern: "POST /sessions", Permission: publicKey, Idempotent: true, Handle: s.once(s.createSession)},
		{Pattern: "POST /sessions/authorize", Permission: privateKey, Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.authorizeSession)},
		{Pattern: "GET /sessions", Permission: "session:read", Handle: s.listSessions},
		{Pattern: "DELETE /sessions/{id}", Permission: "session:delete", Handle: s.deleteSession},

		{Pattern: "POST /access/explain", Permission: "application:read", Body: httpapi.JSON, Handle: s.explainAccess},
		{Pattern: "GET /access/who", Permission: "application:read", Handle: s.whoHasAccess},
		{Pattern: "GET /permissions", Permission: anyKey, Handle: s.listPermissions},

		{Pattern: "POST /tokenize", Permission: "token:create", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.tokenize)},
		{Pattern: "POST /detokenize", Permission: "token:read", Body: httpapi.JSON, Handle: s.detokenize},
		{Pattern: "POST /tokens", Permission: "token:create", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.createToken)},
		{Pattern: "GET /tokens", Permission: "token:read", Handle: s.listTokens},
		{Pattern: "GET /tokens/{id}", Permission: "token:read", Handle: s.getToken},
		{Pattern: "PATCH /tokens/{id}", Permission: "token:update", Body: httpapi.MergePatch, Idempotent: true, Handle: s.once(s.updateToken)},
		{Pattern: "DELETE /tokens/{id}", Permission: "token:delete", Handle: s.deleteToken},
		{Pattern: "POST /tokens/search", Permission: "token:search", Body: httpapi.JSON, Handle: s.searchTokens},
		{Pattern: "GET /v2/tokens", Permission: "token:read", Handle: s.listTokensFrom},
		{Pattern: "POST /v2/tokens/search", Permission: "token:search", Body: httpapi.JSON, Handle: s.searchTokensFrom},

		{Pattern: "POST /reactors", Permission: "reactor:create", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.createReactor)},
		{Pattern: "GET /reactors", Permission: "reactor:read", Handle: s.listReactors},
		{Pattern: "GET /reactors/{id}", Permission: "reactor:read", Handle: s.getReactor},
		{Pattern: "PUT /reactors/{id}", Permission: "reactor:update", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.replaceReactor)},
		{Pattern: "PATCH /reactors/{id}", Permission: "reactor:update", Body: httpapi.MergePatch, Idempotent: true, Handle: s.once(s.patchReactor)},
		{Pattern: "DELETE /reactors/{id}", Permission: "reactor:delete", Handle: s.deleteReactor},
		{Pattern: "POST /reactors/{id}/react", Permission: "token:use", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.react)},
		{Pattern: "POST /reactors/{id}/react-async", Permission: "token:use", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.reactAsync)},
		{Pattern: "GET /reactors/{id}/results/{request_id}", Permission: "token:use", Handle: s.getResult},
		{Pattern: "GET /reactors/{id}/runs", Permission: "reactor:read", Handle: s.listRuns},

		{Pattern: "POST /proxies", Permission: "proxy:create", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.createProxy)},
		{Pattern: "GET /proxies", Permission: "proxy:read", Handle: s.listProxies},
		{Pattern: "GET /proxies/{id}", Permission: "proxy:read", Handle: s.getProxy},
		{Pattern: "PUT /proxies/{id}", Permission: "proxy:update", Body: httpapi.JSON, Idempotent: true, Handle: s.once(s.replaceProxy)},
		{Pattern: "PATCH /proxies/{id}", Permission: "proxy:update", Body: httpapi.MergePatch, Idempotent: true, Handle: s.once(s.patchProxy)},
		{Pattern: "DELETE /proxies/{id}", Permission: "proxy:delete", Handle: s.deleteProxy},
		{Pattern: "POST /proxies/{id}/preview", Permission: "proxy:read", Body: httpapi.JSON, Handle: s.previewProxy},
		{Pattern: "POST /proxies/{id}/rotate-key", Permission: "proxy:update", Idempotent: true, Handle: s.once(s.rotateProxyKey)},
		// The proxy says who may call it: a key of its own, an API key, or both.
		{Pattern: "* /proxy/{rest...}", Who: httpapi.Open, Permission: "token:use", Body: httpapi.Raw, Problem: s.proxyProblem, Handle: s.forward},

		{Pattern: "GET /logs", Permission: "log:read", Handle: s.listLogs},
		{Pattern: "GET /logs/entity-types", Permission: "log:read", Handle: s.listEntityTypes},
	}
	return s.wrapped(rows)
}

var errBusy = fault.New(fault.Unavailable, "the service cannot do this just now").RetryAfter(5 * time.Second)

// wrapped gives every row what all of them share.
func (s Services) wrapped(rows []httpapi.Route) []httpapi.Route {
	for i := range rows {
		handle := rows[i].Handle
		rows[i].Handle = func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
			err := handle(w, r, c)
			// The transaction that was refused is gone: its entry is one of its own.
			s.Audit.Refused(r.Context(), c, err, audit.Attempt{})
			return orBusy(err)
		}
	}
	return rows
}

// Authenticate finds the caller of a key, for all rows.
func (s Services) Authenticate(ctx context.Context, key secret.Text) (access.Caller, error) {
	c, err := s.Directory.Authenticate(ctx, key)
	return c, orBusy(err)
}

// orBusy asks callers to come back when a later try may succeed: the key that is
// missing here comes with the operator, or the next try goes to another server.
func orBusy(err error) error {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, keyring.ErrNoKEK) {
		return fmt.Errorf("%w: %w", errBusy, err)
	}
	return err
}

func madeOf(m directory.Made) api.Made {
	return api.Made{
		CreatedBy: m.CreatedBy, CreatedAt: api.Time{Time: m.CreatedAt}, ModifiedBy: m.ModifiedBy, ModifiedAt: api.Time{Time: m.ModifiedAt},
	}
}

// pageOf reads page and size, and says which rows of the store they mean.
func pageOf(q map[string][]string) (httpapi.Page, store.Page, error) {
	p, err := httpapi.PageOf(q)
	return p, store.Page{Offset: int(p.Offset()), Limit: p.Size}, err
}

// writeList answers with the page of a list that a request asks for: what find
// returns, each item as show writes it.
func writeList[T, U any](w http.ResponseWriter, r *http.Request, find func(url.Values, store.Page) ([]T, int64, error), show func(T) U) error {
	q, err := httpapi.Query(r)
	if err != nil {
		return err
	}
	page, rows, err := pageOf(q)
	if err != nil {
		return err
	}
	list, total, err := find(q, rows)
	if err != nil {
		return err
	}
	out := make([]U, len(list))
	for i, item := range list {
		out[i] = show(item)
	}
	return httpapi.WritePage(w, page, total, out)
}
