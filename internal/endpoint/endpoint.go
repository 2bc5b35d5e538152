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
	"strings"
	"time"

	"github.com/google/uuid"

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
	rows := []httpapi.Route{
		{Pattern: "GET /tenants/self", Auth: httpapi.APIKey, Permission: access.TenantRead, Handle: s.getTenant},
		s.once(httpapi.Route{Pattern: "PUT /tenants/self", Auth: httpapi.APIKey, Permission: access.TenantUpdate, Body: httpapi.JSON}, s.replaceTenant),
		{Pattern: "DELETE /tenants/self", Auth: httpapi.APIKey, Permission: access.TenantDelete, Handle: s.deleteTenant},
		{Pattern: "GET /tenants/self/reports/usage", Auth: httpapi.APIKey, Permission: access.ReportRead, Handle: s.getUsage},
		{Pattern: "GET /tenants/self/callback-secret", Auth: httpapi.APIKey, Permission: access.TenantRead, Handle: s.getCallbackSecret},
		s.once(httpapi.Route{Pattern: "POST /tenants/self/callback-secret", Auth: httpapi.APIKey, Permission: access.TenantUpdate}, s.rotateCallbackSecret),

		s.once(httpapi.Route{Pattern: "POST /applications", Auth: httpapi.APIKey, Permission: access.ApplicationCreate, Body: httpapi.JSON}, s.createApplication),
		{Pattern: "GET /applications", Auth: httpapi.APIKey, Permission: access.ApplicationRead, Handle: s.listApplications},
		{Pattern: "GET /applications/key", Auth: httpapi.APIKey, Handle: s.getOwnApplication},
		{Pattern: "GET /applications/{id}", Auth: httpapi.APIKey, Permission: access.ApplicationRead, Handle: s.getApplication},
		s.once(httpapi.Route{Pattern: "PUT /applications/{id}", Auth: httpapi.APIKey, Permission: access.ApplicationUpdate, Body: httpapi.JSON}, s.replaceApplication),
		{Pattern: "DELETE /applications/{id}", Auth: httpapi.APIKey, Permission: access.ApplicationDelete, Handle: s.deleteApplication},
		s.once(httpapi.Route{Pattern: "POST /applications/{id}/regenerate", Auth: httpapi.APIKey, Permission: access.ApplicationUpdate}, s.regenerateKey),
		s.once(httpapi.Route{Pattern: "POST /applications/{id}/keys", Auth: httpapi.APIKey, Permission: access.ApplicationUpdate}, s.createKey),
		{Pattern: "GET /applications/{id}/keys", Auth: httpapi.APIKey, Permission: access.ApplicationRead, Handle: s.listKeys},
		{Pattern: "GET /applications/{id}/keys/{key_id}", Auth: httpapi.APIKey, Permission: access.ApplicationRead, Handle: s.getKey},
		{Pattern: "DELETE /applications/{id}/keys/{key_id}", Auth: httpapi.APIKey, Permission: access.ApplicationUpdate, Handle: s.deleteKey},

		s.once(httpapi.Route{Pattern: "POST /sessions", Auth: httpapi.PublicKey}, s.createSession),
		s.once(httpapi.Route{Pattern: "POST /sessions/authorize", Auth: httpapi.PrivateKey, Body: httpapi.JSON}, s.authorizeSession),
		{Pattern: "GET /sessions", Auth: httpapi.APIKey, Permission: access.SessionRead, Handle: s.listSessions},
		{Pattern: "DELETE /sessions/{id}", Auth: httpapi.APIKey, Permission: access.SessionDelete, Handle: s.deleteSession},

		{Pattern: "POST /access/explain", Auth: httpapi.APIKey, Permission: access.ApplicationRead, Body: httpapi.JSON, Handle: s.explainAccess},
		{Pattern: "GET /access/who", Auth: httpapi.APIKey, Permission: access.ApplicationRead, Handle: s.whoHasAccess},
		{Pattern: "GET /permissions", Auth: httpapi.APIKey, Handle: s.listPermissions},

		s.once(httpapi.Route{Pattern: "POST /tokenize", Auth: httpapi.APIKey, Permission: access.TokenCreate, FromCode: true, Body: httpapi.JSON}, s.tokenize),
		{Pattern: "POST /detokenize", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true, Body: httpapi.JSON, Handle: s.detokenize},
		s.once(httpapi.Route{Pattern: "POST /tokens", Auth: httpapi.APIKey, Permission: access.TokenCreate, FromCode: true, Body: httpapi.JSON}, s.createToken),
		{Pattern: "GET /tokens", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true, Handle: s.listTokens},
		{Pattern: "GET /tokens/{id}", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true, Handle: s.getToken},
		s.once(httpapi.Route{Pattern: "PATCH /tokens/{id}", Auth: httpapi.APIKey, Permission: access.TokenUpdate, FromCode: true, Body: httpapi.MergePatch}, s.updateToken),
		{Pattern: "DELETE /tokens/{id}", Auth: httpapi.APIKey, Permission: access.TokenDelete, FromCode: true, Handle: s.deleteToken},
		{Pattern: "POST /tokens/search", Auth: httpapi.APIKey, Permission: access.TokenSearch, FromCode: true, Body: httpapi.JSON, Handle: s.searchTokens},
		{Pattern: "GET /v2/tokens", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true, Handle: s.listTokensFrom},
		{Pattern: "POST /v2/tokens/search", Auth: httpapi.APIKey, Permission: access.TokenSearch, FromCode: true, Body: httpapi.JSON, Handle: s.searchTokensFrom},

		s.once(httpapi.Route{Pattern: "POST /reactors", Auth: httpapi.APIKey, Permission: access.ReactorCreate, Body: httpapi.JSON}, s.createReactor),
		{Pattern: "GET /reactors", Auth: httpapi.APIKey, Permission: access.ReactorRead, Handle: s.listReactors},
		{Pattern: "GET /reactors/{id}", Auth: httpapi.APIKey, Permission: access.ReactorRead, Handle: s.getReactor},
		s.once(httpapi.Route{Pattern: "PUT /reactors/{id}", Auth: httpapi.APIKey, Permission: access.ReactorUpdate, Body: httpapi.JSON}, s.replaceReactor),
		s.once(httpapi.Route{Pattern: "PATCH /reactors/{id}", Auth: httpapi.APIKey, Permission: access.ReactorUpdate, Body: httpapi.MergePatch}, s.patchReactor),
		{Pattern: "DELETE /reactors/{id}", Auth: httpapi.APIKey, Permission: access.ReactorDelete, Handle: s.deleteReactor},
		s.once(httpapi.Route{Pattern: "POST /reactors/{id}/react", Auth: httpapi.APIKey, Permission: access.TokenUse, FromCode: true, Body: httpapi.JSON}, s.react),
		s.once(httpapi.Route{Pattern: "POST /reactors/{id}/react-async", Auth: httpapi.APIKey, Permission: access.TokenUse, FromCode: true, Body: httpapi.JSON}, s.reactAsync),
		{Pattern: "GET /reactors/{id}/results/{request_id}", Auth: httpapi.APIKey, Permission: access.TokenUse, FromCode: true, Handle: s.getResult},
		{Pattern: "GET /reactors/{id}/runs", Auth: httpapi.APIKey, Permission: access.ReactorRead, Handle: s.listRuns},

		s.once(httpapi.Route{Pattern: "POST /proxies", Auth: httpapi.APIKey, Permission: access.ProxyCreate, Body: httpapi.JSON}, s.createProxy),
		{Pattern: "GET /proxies", Auth: httpapi.APIKey, Permission: access.ProxyRead, Handle: s.listProxies},
		{Pattern: "GET /proxies/{id}", Auth: httpapi.APIKey, Permission: access.ProxyRead, Handle: s.getProxy},
		s.once(httpapi.Route{Pattern: "PUT /proxies/{id}", Auth: httpapi.APIKey, Permission: access.ProxyUpdate, Body: httpapi.JSON}, s.replaceProxy),
		s.once(httpapi.Route{Pattern: "PATCH /proxies/{id}", Auth: httpapi.APIKey, Permission: access.ProxyUpdate, Body: httpapi.MergePatch}, s.patchProxy),
		{Pattern: "DELETE /proxies/{id}", Auth: httpapi.APIKey, Permission: access.ProxyDelete, Handle: s.deleteProxy},
		{Pattern: "POST /proxies/{id}/preview", Auth: httpapi.APIKey, Permission: access.ProxyRead, Body: httpapi.JSON, Handle: s.previewProxy},
		s.once(httpapi.Route{Pattern: "POST /proxies/{id}/rotate-key", Auth: httpapi.APIKey, Permission: access.ProxyUpdate}, s.rotateProxyKey),
		// The proxy says who may call it: a key of its own, an API key, or both.
		{Pattern: "* /proxy/{rest...}", Auth: httpapi.Anonymous, Permission: access.TokenUse, FromCode: true, Body: httpapi.Raw, Problem: s.proxyProblem, Handle: s.forward},

		{Pattern: "GET /logs", Auth: httpapi.APIKey, Permission: access.LogRead, Handle: s.listLogs},
		{Pattern: "GET /v2/logs", Auth: httpapi.APIKey, Permission: access.LogRead, Handle: s.listLogsFrom},
		{Pattern: "GET /names", Auth: httpapi.APIKey, Permission: access.LogRead, Handle: s.listNames},
		{Pattern: "GET /logs/entity-types", Auth: httpapi.APIKey, Permission: access.LogRead, Handle: s.listEntityTypes},
	}
	return s.wrapped(rows)
}

var errBusy = fault.New(fault.Unavailable, "the service cannot do this just now").RetryAfter(5 * time.Second)

// wrapped gives every row what all of them share.
func (s Services) wrapped(rows []httpapi.Route) []httpapi.Route {
	for i := range rows {
		handle, attempt, ids := rows[i].Handle, attemptsOf(rows[i]), uuidsOf(rows[i])
		rows[i].Handle = func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
			for _, name := range ids {
				r.SetPathValue(name, lowerUUID(r.PathValue(name)))
			}
			err := handle(w, r, c)
			// The transaction that was refused is gone: its entry is one of its own.
			s.Audit.Refused(r.Context(), c, err, attempt(r))
			return orBusy(err)
		}
	}
	return rows
}

// uuidsOf names the path values of a row that are UUIDs. Ids of tokens are not:
// they are the callers' own texts, in which case counts.
func uuidsOf(route httpapi.Route) (names []string) {
	_, path, _ := strings.Cut(route.Pattern, " ")
	for segment := range strings.SplitSeq(path, "/") {
		name, isValue := strings.CutPrefix(segment, "{")
		name, whole := strings.CutSuffix(name, "}")
		if isValue && whole && !strings.HasSuffix(name, "...") && !strings.HasPrefix(path, "/tokens/") {
			names = append(names, name)
		}
	}
	return names
}

// lowerUUID returns a UUID as the service writes it, and other text unchanged.
func lowerUUID(text string) string {
	const length = 36
	if len(text) != length || uuid.Validate(text) != nil {
		return text
	}
	return strings.ToLower(text)
}

// Authenticate finds the caller of a key, for all rows.
func (s Services) Authenticate(ctx context.Context, key secret.Text) (access.Caller, error) {
	c, err := s.Directory.Authenticate(ctx, key)
	return c, orBusy(err)
}

// orBusy asks callers to come back when a later try may succeed: the key that is
// missing here comes with the operator, or the next try goes to another server.
func orBusy(err error) error {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, keyring.ErrNoKEK) || keyring.IsKMSDown(err) {
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
