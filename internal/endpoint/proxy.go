package endpoint

import (
	"net/http"
	"net/url"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/proxy"
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

func (s Services) createProxy(r *http.Request, c access.Caller, a *idempotency.Attempt) (answer idempotency.Answer, err error) {
	in, err := bodyOf(r)
	if err != nil {
		return answer, err
	}
	return effect(r.Context(), a, func(d proxy.Proxy) (idempotency.Answer, error) {
		return about(audit.Proxy, d.ID, http.StatusCreated, "/proxies/"+d.ID, proxyOf(d))
	}, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.Create(r.Context(), c, in, last...)
	})
}

func (s Services) getProxy(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	d, err := s.Proxies.Get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, proxyOf(d))
}

func (s Services) listProxies(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	return writeList(w, r, func(q url.Values, page store.Page) ([]proxy.Proxy, int64, error) {
		return s.Proxies.List(r.Context(), c, definitionFilterOf(q), page)
	}, proxyOf)
}

func (s Services) replaceProxy(r *http.Request, c access.Caller, a *idempotency.Attempt) (answer idempotency.Answer, err error) {
	in, err := bodyOf(r)
	if err != nil {
		return answer, err
	}
	return effect(r.Context(), a, shownProxy, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.Replace(r.Context(), c, r.PathValue("id"), in, last...)
	})
}

func shownProxy(d proxy.Proxy) (idempotency.Answer, error) {
	return about(audit.Proxy, d.ID, http.StatusOK, "", proxyOf(d))
}

func (s Services) patchProxy(r *http.Request, c access.Caller, a *idempotency.Attempt) (answer idempotency.Answer, err error) {
	patch, err := bodyOf(r)
	if err != nil {
		return answer, err
	}
	return effect(r.Context(), a, func(d proxy.Proxy) (idempotency.Answer, error) {
		return done(audit.Proxy, d.ID, http.StatusNoContent)
	}, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.Patch(r.Context(), c, r.PathValue("id"), patch, last...)
	})
}

func (s Services) rotateProxyKey(r *http.Request, c access.Caller, a *idempotency.Attempt) (idempotency.Answer, error) {
	return effect(r.Context(), a, shownProxy, func(last ...store.Step[proxy.Proxy]) (proxy.Proxy, error) {
		return s.Proxies.RotateKey(r.Context(), c, r.PathValue("id"), last...)
	})
}

func (s Services) deleteProxy(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	if err := s.Proxies.Delete(r.Context(), c, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
