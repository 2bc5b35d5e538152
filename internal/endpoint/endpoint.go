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
	"github.com/tokenkeep/tokenkeep/internal/member"
	"github.com/tokenkeep/tokenkeep/internal/openid"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/response"
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
	Members     *member.Service
	Providers   *openid.Providers
	// ConsoleURL returns the origin under which browsers reach the server.
	ConsoleURL func() string
}

// row is a route with what it does.
type row struct {
	httpapi.Route
	handle handler
}

// Routes returns the rows of the API.
func Routes(s Services) []httpapi.Route {
	return s.routes(append(s.memberRoutes(), []row{
		{httpapi.Route{Pattern: "GET /tenants/self", Auth: httpapi.APIKey, Permission: access.TenantRead}, s.getTenant},
		{httpapi.Route{Pattern: "PUT /tenants/self", Auth: httpapi.APIKey, Permission: access.TenantUpdate, Body: httpapi.JSON, Idempotent: true}, s.replaceTenant},
		{httpapi.Route{Pattern: "DELETE /tenants/self", Auth: httpapi.APIKey, Permission: access.TenantDelete}, s.deleteTenant},
		{httpapi.Route{Pattern: "GET /tenants/self/reports/usage", Auth: httpapi.APIKey, Permission: access.ReportRead}, s.getUsage},
		{httpapi.Route{Pattern: "GET /tenants/self/callback-secret", Auth: httpapi.APIKey, Permission: access.TenantRead}, s.getCallbackSecret},
		{httpapi.Route{Pattern: "POST /tenants/self/callback-secret", Auth: httpapi.APIKey, Permission: access.TenantUpdate, Idempotent: true}, s.rotateCallbackSecret},

		{httpapi.Route{Pattern: "POST /applications", Auth: httpapi.APIKey, Permission: access.ApplicationCreate, Body: httpapi.JSON, Idempotent: true}, s.createApplication},
		{httpapi.Route{Pattern: "GET /applications", Auth: httpapi.APIKey, Permission: access.ApplicationRead}, s.listApplications},
		{httpapi.Route{Pattern: "GET /applications/key", Auth: httpapi.APIKey}, s.getOwnApplication},
		{httpapi.Route{Pattern: "GET /applications/{id}", Auth: httpapi.APIKey, Permission: access.ApplicationRead}, s.getApplication},
		{httpapi.Route{Pattern: "PUT /applications/{id}", Auth: httpapi.APIKey, Permission: access.ApplicationUpdate, Body: httpapi.JSON, Idempotent: true}, s.replaceApplication},
		{httpapi.Route{Pattern: "DELETE /applications/{id}", Auth: httpapi.APIKey, Permission: access.ApplicationDelete}, s.deleteApplication},
		{httpapi.Route{Pattern: "POST /applications/{id}/regenerate", Auth: httpapi.APIKey, Permission: access.ApplicationUpdate, Idempotent: true}, s.regenerateKey},
		{httpapi.Route{Pattern: "POST /applications/{id}/keys", Auth: httpapi.APIKey, Permission: access.ApplicationUpdate, Idempotent: true}, s.createKey},
		{httpapi.Route{Pattern: "GET /applications/{id}/keys", Auth: httpapi.APIKey, Permission: access.ApplicationRead}, s.listKeys},
		{httpapi.Route{Pattern: "GET /applications/{id}/keys/{key_id}", Auth: httpapi.APIKey, Permission: access.ApplicationRead}, s.getKey},
		{httpapi.Route{Pattern: "DELETE /applications/{id}/keys/{key_id}", Auth: httpapi.APIKey, Permission: access.ApplicationUpdate}, s.deleteKey},

		{httpapi.Route{Pattern: "POST /sessions", Auth: httpapi.PublicKey, Idempotent: true}, s.createSession},
		{httpapi.Route{Pattern: "POST /sessions/authorize", Auth: httpapi.PrivateKey, Body: httpapi.JSON, Idempotent: true}, s.authorizeSession},
		{httpapi.Route{Pattern: "GET /sessions", Auth: httpapi.APIKey, Permission: access.SessionRead}, s.listSessions},
		{httpapi.Route{Pattern: "DELETE /sessions/{id}", Auth: httpapi.APIKey, Permission: access.SessionDelete}, s.deleteSession},

		{httpapi.Route{Pattern: "POST /access/explain", Auth: httpapi.APIKey, Permission: access.ApplicationRead, Body: httpapi.JSON}, s.explainAccess},
		{httpapi.Route{Pattern: "GET /access/who", Auth: httpapi.APIKey, Permission: access.ApplicationRead}, s.whoHasAccess},
		{httpapi.Route{Pattern: "GET /permissions", Auth: httpapi.APIKey}, s.listPermissions},

		{httpapi.Route{Pattern: "POST /tokenize", Auth: httpapi.APIKey, Permission: access.TokenCreate, FromCode: true, Body: httpapi.JSON, Idempotent: true}, s.tokenize},
		{httpapi.Route{Pattern: "POST /detokenize", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true, Body: httpapi.JSON}, s.detokenize},
		{httpapi.Route{Pattern: "POST /tokens", Auth: httpapi.APIKey, Permission: access.TokenCreate, FromCode: true, Body: httpapi.JSON, Idempotent: true}, s.createToken},
		{httpapi.Route{Pattern: "GET /tokens", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true}, s.listTokens},
		{httpapi.Route{Pattern: "GET /tokens/{id}", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true}, s.getToken},
		{httpapi.Route{Pattern: "PATCH /tokens/{id}", Auth: httpapi.APIKey, Permission: access.TokenUpdate, FromCode: true, Body: httpapi.MergePatch, Idempotent: true}, s.updateToken},
		{httpapi.Route{Pattern: "DELETE /tokens/{id}", Auth: httpapi.APIKey, Permission: access.TokenDelete, FromCode: true}, s.deleteToken},
		{httpapi.Route{Pattern: "POST /tokens/search", Auth: httpapi.APIKey, Permission: access.TokenSearch, FromCode: true, Body: httpapi.JSON}, s.searchTokens},
		{httpapi.Route{Pattern: "GET /v2/tokens", Auth: httpapi.APIKey, Permission: access.TokenRead, FromCode: true}, s.listTokensFrom},
		{httpapi.Route{Pattern: "POST /v2/tokens/search", Auth: httpapi.APIKey, Permission: access.TokenSearch, FromCode: true, Body: httpapi.JSON}, s.searchTokensFrom},

		{httpapi.Route{Pattern: "POST /reactors", Auth: httpapi.APIKey, Permission: access.ReactorCreate, Body: httpapi.JSON, Idempotent: true}, s.createReactor},
		{httpapi.Route{Pattern: "GET /reactors", Auth: httpapi.APIKey, Permission: access.ReactorRead}, s.listReactors},
		{httpapi.Route{Pattern: "GET /reactors/{id}", Auth: httpapi.APIKey, Permission: access.ReactorRead}, s.getReactor},
		{httpapi.Route{Pattern: "PUT /reactors/{id}", Auth: httpapi.APIKey, Permission: access.ReactorUpdate, Body: httpapi.JSON, Idempotent: true}, s.replaceReactor},
		{httpapi.Route{Pattern: "PATCH /reactors/{id}", Auth: httpapi.APIKey, Permission: access.ReactorUpdate, Body: httpapi.MergePatch, Idempotent: true}, s.patchReactor},
		{httpapi.Route{Pattern: "DELETE /reactors/{id}", Auth: httpapi.APIKey, Permission: access.ReactorDelete}, s.deleteReactor},
		{httpapi.Route{Pattern: "POST /reactors/{id}/react", Auth: httpapi.APIKey, Permission: access.TokenUse, FromCode: true, Body: httpapi.JSON, Idempotent: true}, s.react},
		{httpapi.Route{Pattern: "POST /reactors/{id}/react-async", Auth: httpapi.APIKey, Permission: access.TokenUse, FromCode: true, Body: httpapi.JSON, Idempotent: true}, s.reactAsync},
		{httpapi.Route{Pattern: "GET /reactors/{id}/results/{request_id}", Auth: httpapi.APIKey, Permission: access.TokenUse, FromCode: true}, s.getResult},
		{httpapi.Route{Pattern: "GET /reactors/{id}/runs", Auth: httpapi.APIKey, Permission: access.ReactorRead}, s.listRuns},

		{httpapi.Route{Pattern: "POST /proxies", Auth: httpapi.APIKey, Permission: access.ProxyCreate, Body: httpapi.JSON, Idempotent: true}, s.createProxy},
		{httpapi.Route{Pattern: "GET /proxies", Auth: httpapi.APIKey, Permission: access.ProxyRead}, s.listProxies},
		{httpapi.Route{Pattern: "GET /proxies/{id}", Auth: httpapi.APIKey, Permission: access.ProxyRead}, s.getProxy},
		{httpapi.Route{Pattern: "PUT /proxies/{id}", Auth: httpapi.APIKey, Permission: access.ProxyUpdate, Body: httpapi.JSON, Idempotent: true}, s.replaceProxy},
		{httpapi.Route{Pattern: "PATCH /proxies/{id}", Auth: httpapi.APIKey, Permission: access.ProxyUpdate, Body: httpapi.MergePatch, Idempotent: true}, s.patchProxy},
		{httpapi.Route{Pattern: "DELETE /proxies/{id}", Auth: httpapi.APIKey, Permission: access.ProxyDelete}, s.deleteProxy},
		{httpapi.Route{Pattern: "POST /proxies/{id}/preview", Auth: httpapi.APIKey, Permission: access.ProxyRead, Body: httpapi.JSON}, s.previewProxy},
		{httpapi.Route{Pattern: "POST /proxies/{id}/rotate-key", Auth: httpapi.APIKey, Permission: access.ProxyUpdate, Idempotent: true}, s.rotateProxyKey},
		// The proxy says who may call it: a key of its own, an API key, or both.
		{httpapi.Route{Pattern: "* /proxy/{rest...}", Auth: httpapi.Anonymous, Permission: access.TokenUse, FromCode: true, Body: httpapi.Raw, Problem: s.proxyProblem}, s.forward},

		{httpapi.Route{Pattern: "GET /logs", Auth: httpapi.APIKey, Permission: access.LogRead}, s.listLogs},
		{httpapi.Route{Pattern: "GET /v2/logs", Auth: httpapi.APIKey, Permission: access.LogRead}, s.listLogsFrom},
		{httpapi.Route{Pattern: "GET /names", Auth: httpapi.APIKey, Permission: access.LogRead}, s.listNames},
		{httpapi.Route{Pattern: "GET /logs/entity-types", Auth: httpapi.APIKey, Permission: access.LogRead}, s.listEntityTypes},
	}...))
}

var errBusy = fault.New(fault.Unavailable, "the service cannot do this just now").RetryAfter(5 * time.Second)

// routes gives every row what all of them share.
func (s Services) routes(rows []row) []httpapi.Route {
	routes := make([]httpapi.Route, len(rows))
	for i, row := range rows {
		routes[i] = s.route(row)
	}
	return routes
}

// route makes the route of a row. What it says of its callers holds for every
// response, whatever the service behind it has decided.
func (s Services) route(row row) httpapi.Route {
	route, handle, attempt, ids := row.Route, row.handle, attemptsOf(row.Route), uuidsOf(row.Route)
	if route.Idempotent {
		handle = s.once(route, handle)
	}
	respond := func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
		out, err := handle(r, c, nil)
		if err != nil {
			return err
		}
		if route.Require(c) != nil {
			return fmt.Errorf("endpoint: the service behind %s does not refuse a caller that the row refuses", route.Pattern)
		}
		return httpapi.Write(w, out)
	}
	route.Refused = func(r *http.Request, c access.Caller, err error) {
		// The transaction that was refused is gone: its entry is one of its own.
		s.Audit.Refused(r.Context(), c, err, attempt(r))
	}
	route.Handle = func(w http.ResponseWriter, r *http.Request, c access.Caller) error {
		for _, name := range ids {
			r.SetPathValue(name, lowerUUID(r.PathValue(name)))
		}
		err := respond(w, r, c)
		route.Refused(r, c, err)
		return OrBusy(err)
	}
	return route
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

// AuthenticatePerson finds the member of a cookie, for all rows.
func (s Services) AuthenticatePerson(ctx context.Context, cookie secret.Text) (access.Caller, error) {
	c, err := s.Members.Authenticate(ctx, cookie)
	return c, OrBusy(err)
}

// Authenticate finds the caller of a key, for all rows.
func (s Services) Authenticate(ctx context.Context, key secret.Text) (access.Caller, error) {
	c, err := s.Directory.Authenticate(ctx, key)
	return c, OrBusy(err)
}

// OrBusy asks callers to come back when a later try may succeed: the key that is
// missing here comes with the operator, or the next try goes to another server.
func OrBusy(err error) error {
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

// listed returns the page of a list that a request asks for: what find returns,
// each item as show writes it.
func listed[T, U any](r *http.Request, find func(url.Values, store.Page) ([]T, int64, error), show func(T) U) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	page, rows, err := pageOf(q)
	if err != nil {
		return nil, err
	}
	list, total, err := find(q, rows)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, httpapi.ListOf(page, total, each(list, show)))
}

// listedFrom is listed for lists that are read by cursor.
func listedFrom[T, U any](r *http.Request, find func(q url.Values, size int) ([]T, string, error), show func(T) U) (*response.Response, error) {
	q, err := httpapi.Query(r)
	if err != nil {
		return nil, err
	}
	page, err := httpapi.PageOf(q)
	if err != nil {
		return nil, err
	}
	list, next, err := find(q, page.Size)
	if err != nil {
		return nil, err
	}
	return from(page.Size, next, each(list, show))
}

// from is a part of a list that is read by cursor.
func from[U any](size int, next string, list []U) (*response.Response, error) {
	return respond(http.StatusOK, api.ListFrom[U]{Pagination: api.Cursor{PageSize: size, Next: next}, Data: list})
}

// each returns the items of a list as show writes them.
func each[T, U any](list []T, show func(T) U) []U {
	out := make([]U, len(list))
	for i, item := range list {
		out[i] = show(item)
	}
	return out
}
