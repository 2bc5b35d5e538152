package endpoint

import (
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func tenantOf(t directory.Tenant) api.Tenant {
	return api.Tenant{ID: t.ID, Name: t.Name, Settings: t.Settings, Made: madeOf(t.Made)}
}

func (s Services) getTenant(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	t, err := s.Directory.Tenant(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, tenantOf(t))
}

func (s Services) replaceTenant(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	// api.ReplaceTenant, but for a setting that is null: that is one left out.
	var in struct {
		Name     string             `json:"name"`
		Settings map[string]*string `json:"settings"`
	}
	if err := httpapi.Decode(r, &in); err != nil {
		return nil, err
	}
	chosen := make(map[string]string, len(in.Settings))
	for name, value := range in.Settings {
		if value != nil {
			chosen[name] = *value
		}
	}
	return effect(r.Context(), a, func(t directory.Tenant) (*response.Response, error) {
		return about(audit.Tenant, t.ID, http.StatusOK, "", tenantOf(t))
	}, func(last ...store.Step[directory.Tenant]) (directory.Tenant, error) {
		return s.Directory.ReplaceTenant(r.Context(), c, in.Name, chosen, last...)
	})
}

func (s Services) deleteTenant(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := s.Directory.DeleteTenant(r.Context(), c); err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}

func (s Services) getUsage(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	u, err := s.Directory.Usage(r.Context(), c)
	if err != nil {
		return nil, err
	}
	report := api.TokenReport{TotalTokens: u.Total, MetricsByType: make(map[string]api.TypeMetrics, len(u.Tokens))}
	for kind, n := range u.Tokens {
		report.MetricsByType[kind] = api.TypeMetrics{Count: n}
	}
	return respond(http.StatusOK, api.Usage{TotalTokens: u.Total, TokenReport: report})
}

func callbackSecretOf(c directory.CallbackSecret) api.CallbackSecret {
	return api.CallbackSecret{Secret: c.Secret.Reveal(), PreviousSecret: c.Previous.Reveal(), PreviousUntil: api.Time{Time: c.PreviousUntil}}
}

func (s Services) getCallbackSecret(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	secret, err := s.Directory.CallbackSecret(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, callbackSecretOf(secret))
}

func (s Services) rotateCallbackSecret(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	return effect(r.Context(), a, func(secret directory.CallbackSecret) (*response.Response, error) {
		return about(audit.Tenant, c.Tenant(), http.StatusOK, "", callbackSecretOf(secret))
	}, func(last ...store.Step[directory.CallbackSecret]) (directory.CallbackSecret, error) {
		return s.Directory.RotateCallbackSecret(r.Context(), c, last...)
	})
}
