package endpoint

import (
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func proxyOf(d proxy.Proxy) api.Proxy {
	transform := func(code string) *api.ProxyTransform {
		if code == "" {
			return nil
		}
		return &api.ProxyTransform{Code: code}
	}
	return api.Proxy{
		ID: d.ID, TenantID: d.TenantID, Name: d.Name, Key: proxy.Key(d).Reveal(), DestinationURL: proxy.Destination(d), RequireAuth: proxy.RequireAuth(d),
		RequestTransform: transform(proxy.RequestTransform(d)), ResponseTransform: transform(proxy.ResponseTransform(d)),
		RequestReactorID: proxy.RequestReactor(d), ResponseReactorID: proxy.ResponseReactor(d),
		ApplicationID: d.ApplicationID, Configuration: configurationOf(proxy.Configuration(d)), Made: madeOfDefinition(d.Definition),
	}
}

func (s Services) createProxy(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(d proxy.Proxy) (*response.Response, error) {
		return about(audit.Proxy, d.ID, http.StatusCreated, "/proxies/"+d.ID, proxyOf(d))
	}, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.Create(r.Context(), c, in, last...)
	})
}

func (s Services) getProxy(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	d, err := s.Proxies.Get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, proxyOf(d))
}

func (s Services) listProxies(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(q url.Values, page store.Page) ([]proxy.Proxy, int64, error) {
		return s.Proxies.List(r.Context(), c, definitionFilterOf(q), page)
	}, proxyOf)
}

func (s Services) replaceProxy(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, shownProxy, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.Replace(r.Context(), c, r.PathValue("id"), in, last...)
	})
}

func shownProxy(d proxy.Proxy) (*response.Response, error) {
	return about(audit.Proxy, d.ID, http.StatusOK, "", proxyOf(d))
}

func (s Services) patchProxy(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	patch, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(d proxy.Proxy) (*response.Response, error) {
		return done(audit.Proxy, d.ID, http.StatusNoContent)
	}, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.Patch(r.Context(), c, r.PathValue("id"), patch, last...)
	})
}

func (s Services) rotateProxyKey(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	return effect(r.Context(), a, shownProxy, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.RotateKey(r.Context(), c, r.PathValue("id"), last...)
	})
}

func (s Services) deleteProxy(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := s.Proxies.Delete(r.Context(), c, r.PathValue("id")); err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}
