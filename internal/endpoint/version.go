package endpoint

import (
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/definition"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/reactor"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func (s Services) listReactorVersions(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	list, err := s.Reactors.Versions(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, each(list, versionOf))
}

func (s Services) listProxyVersions(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	list, err := s.Proxies.Versions(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, each(list, versionOf))
}

func versionOf(v definition.Version) api.CodeVersion {
	return api.CodeVersion{Number: v.Number, Code: v.Code, CreatedBy: v.By, ActorName: v.ActorName, CreatedAt: api.Time{Time: v.At}}
}

func (s Services) restoreReactor(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	return effect(r.Context(), a, func(d reactor.Reactor) (*response.Response, error) {
		return about(audit.Reactor, d.ID, http.StatusOK, "", reactorOf(d))
	}, func(last ...store.Step[reactor.Reactor]) (reactor.Reactor, error) {
		return s.Reactors.Restore(r.Context(), c, r.PathValue("id"), r.PathValue("n"), last...)
	})
}

func (s Services) restoreProxy(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	return effect(r.Context(), a, func(d proxy.Proxy) (*response.Response, error) {
		return about(audit.Proxy, d.ID, http.StatusOK, "", proxyOf(d))
	}, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.Restore(r.Context(), c, r.PathValue("id"), r.PathValue("n"), last...)
	})
}

// tryReactor runs code that is not saved. What is wrong with the code is a part
// of the response, with what it printed.
func (s Services) tryReactor(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	t, err := s.Reactors.Try(r.Context(), c, in)
	if err != nil {
		return nil, err
	}
	out := trial{Raw: raw(t.Raw), Tokenize: raw(t.Tokenize), TookMicroseconds: t.Took.Microseconds(), MemoryBytes: t.Memory, Console: orEmpty(t.Console)}
	if t.Custom != nil {
		out.Response = &api.TrialResponse{Status: t.Custom.Status, Headers: t.Custom.Headers, Body: t.Custom.Body}
	}
	if t.Err != nil {
		problem := httpapi.ProblemOf(t.Err, httpapi.TraceID(r.Context()))
		out.Error = &problem
	}
	return respond(http.StatusOK, out)
}

// trial is api.Trial with values that do not print.
type trial struct {
	Raw              any                `json:"raw,omitempty"`
	Tokenize         any                `json:"tokenize,omitempty"`
	Response         *api.TrialResponse `json:"response,omitempty"`
	Error            *api.Problem       `json:"error,omitempty"`
	TookMicroseconds int64              `json:"took_us"`
	MemoryBytes      int64              `json:"memory_bytes"`
	Console          any                `json:"console"`
}
