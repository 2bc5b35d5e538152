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

// The values of the Permission column that are not permissions.
const (
	anyKey     = ""
	publicKey  = "(public application key)"
	privateKey = "(private application key)"
)

// Routes returns the rows of the API.
func Routes(s Services) []httpapi.Route {
	rows := []httpapi.Route{
		{Pattern: "GET /tenants/self", Permission: "tenant:read", Handle: s.getTenant},
		s.once(httpapi.Route{Pattern: "PUT /tenants/self", Permission: "tenant:update", Body: httpapi.JSON}, s.replaceTenant),
		{Pattern: "DELETE /tenants/self", Permission: "tenant:delete", Handle: s.deleteTenant},
		{Pattern: "GET /tenants/self/reports/usage", Permission: "report:read", Handle: s.getUsage},
		{Pattern: "GET /tenants/self/callback-secret", Permission: "tenant:read", Handle: s.getCallbackSecret},
		s.once(httpapi.Route{Pattern: "POST /tenants/self/callback-secret", Permission: "tenant:update"}, s.rotateCallbackSecret),

		s.once(httpapi.Route{Pattern: "POST /applications", Permission: "application:create", Body: httpapi.JSON}, s.createApplication),
		{Pattern: "GET /applications", Permission: "application:read", Handle: s.listApplications},
		{Pattern: "GET /applications/key", Permission: anyKey, Handle: s.getOwnApplication},
		{Pattern: "GET /applications/{id}", Permission: "application:read", Handle: s.getApplication},
		s.once(httpapi.Route{Pattern: "PUT /applications/{id}", Permission: "application:update", Body: httpapi.JSON}, s.replaceApplication),
		{Pattern: "DELETE /applications/{id}", Permission: "application:delete", Handle: s.deleteApplication},
		s.once(httpapi.Route{Pattern: "POST /applications/{id}/regenerate", Permission: "application:update"}, s.regenerateKey),
		s.once(httpapi.Route{Pattern: "POST /applications/{id}/keys", Permission: "application:update"}, s.createKey),
		{Pattern: "GET /applications/{id}/keys", Permission: "application:read", Handle: s.listKeys},
		{Pattern: "GET /applications/{id}/keys/{key_id}", Permission: "application:read", Handle: s.getKey},
		{Pattern: "DELETE /applications/{id}/keys/{key_id}", Permission: "application:update", Handle: s.deleteKey},

		s.once(httpapi.Route{Pattern: "POST /sessions", Permission: publicKey}, s.createSession),
		s.once(httpapi.Route{Pattern: "POST /sessions/authorize", Permission: privateKey, Body: httpapi.JSON}, s.authorizeSession),
		{Pattern: "GET /sessions", Permission: "session:read", Handle: s.listSessions},
		{Pattern: "DELETE /sessions/{id}", Permission: "session:delete", Handle: s.deleteSession},

		{Pattern: "POST /access/explain", Permission: "application:read", Body: httpapi.JSON, Handle: s.explainAccess},
		{Pattern: "GET /access/who", Permission: "application:read", Handle: s.whoHasAccess},
		{Pattern: "GET /permissions", Permission: anyKey, Handle: s.listPermissions},

		s.once(httpapi.Route{Pattern: "POST /tokenize", Permission: "token:create", FromCode: true, Body: httpapi.JSON}, s.tokenize),
		{Pattern: "POST /detokenize", Permission: "token:read", FromCode: true, Body: httpapi.JSON, Handle: s.detokenize},
		s.once(httpapi.Route{Pattern: "POST /tokens", Permission: "token:create", FromCode: true, Body: httpapi.JSON}, s.createToken),
		{Pattern: "GET /tokens", Permission: "token:read", FromCode: true, Handle: s.listTokens},
		{Pattern: "GET /tokens/{id}", Permission: "token:read", FromCode: true, Handle: s.getToken},
		s.once(httpapi.Route{Pattern: "PATCH /tokens/{id}", Permission: "token:update", FromCode: true, Body: httpapi.MergePatch}, s.updateToken),
		{Pattern: "DELETE /tokens/{id}", Permission: "token:delete", FromCode: true, Handle: s.deleteToken},
		{Pattern: "POST /tokens/search", Permission: "token:search", FromCode: true, Body: httpapi.JSON, Handle: s.searchTokens},
		{Pattern: "GET /v2/tokens", Permission: "token:read", FromCode: true, Handle: s.listTokensFrom},
		{Pattern: "POST /v2/tokens/search", Permission: "token:search", FromCode: true, Body: httpapi.JSON, Handle: s.searchTokensFrom},

		s.once(httpapi.Route{Pattern: "POST /reactors", Permission: "reactor:create", Body: httpapi.JSON}, s.createReactor),
		{Pattern: "GET /reactors", Permission: "reactor:read", Handle: s.listReactors},
		{Pattern: "GET /reactors/{id}", Permission: "reactor:read", Handle: s.getReactor},
		s.once(httpapi.Route{Pattern: "PUT /reactors/{id}", Permission: "reactor:update", Body: httpapi.JSON}, s.replaceReactor),
		s.once(httpapi.Route{Pattern: "PATCH /reactors/{id}", Permission: "reactor:update", Body: httpapi.MergePatch}, s.patchReactor),
		{Pattern: "DELETE /reactors/{id}", Permission: "reactor:delete", Handle: s.deleteReactor},
		s.once(httpapi.Route{Pattern: "POST /reactors/{id}/react", Permission: "token:use", FromCode: true, Body: httpapi.JSON}, s.react),
		s.once(httpapi.Route{Pattern: "POST /reactors/{id}/react-async", Permission: "token:use", FromCode: true, Body: httpapi.JSON}, s.reactAsync),
		{Pattern: "GET /reactors/{id}/results/{request_id}", Permission: "token:use", FromCode: true, Handle: s.getResult},
		{Pattern: "GET /reactors/{id}/runs", Permission: "reactor:read", Handle: s.listRuns},

		s.once(httpapi.Route{Pattern: "POST /proxies", Permission: "proxy:create", Body: httpapi.JSON}, s.createProxy),
		{Pattern: "GET /proxies", Permission: "proxy:read", Handle: s.listProxies},
		{Pattern: "GET /proxies/{id}", Permission: "proxy:read", Handle: s.getProxy},
		s.once(httpapi.Route{Pattern: "PUT /proxies/{id}", Permission: "proxy:update", Body: httpapi.JSON}, s.replaceProxy),
		s.once(httpapi.Route{Pattern: "PATCH /proxies/{id}", Permission: "proxy:update", Body: httpapi.MergePatch}, s.patchProxy),
		{Pattern: "DELETE /proxies/{id}", Permission: "proxy:delete", Handle: s.deleteProxy},
		{Pattern: "POST /proxies/{id}/preview", Permission: "proxy:read", Body: httpapi.JSON, Handle: s.previewProxy},
		s.once(httpapi.Route{Pattern: "POST /proxies/{id}/rotate-key", Permission: "proxy:update"}, s.rotateProxyKey),
		// The proxy says who may call it: a key of its own, an API key, or both.
		{Pattern: "* /proxy/{rest...}", Who: httpapi.Open, Permission: "token:use", FromCode: true, Body: httpapi.Raw, Problem: s.proxyProblem, Handle: s.forward},

		{Pattern: "GET /logs", Permission: "log:read", Handle: s.listLogs},
		{Pattern: "GET /v2/logs", Permission: "log:read", Handle: s.listLogsFrom},
		{Pattern: "GET /names", Permission: "log:read", Handle: s.listNames},
		{Pattern: "GET /logs/entity-types", Permission: "log:read", Handle: s.listEntityTypes},
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
