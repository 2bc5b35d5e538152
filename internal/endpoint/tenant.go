package endpoint

import (
	"net/http"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/directory"
	"github.com/tokenkeep/tokenkeep/internal/httpapi"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func tenantOf(t directory.Tenant) api.Tenant {
	return api.Tenant{ID: t.ID, Name: t.Name, Settings: t.Settings, Made: madeOf(t.Made)}
}

func (s Services) getTenant(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	t, err := s.Directory.Tenant(r.Context(), c)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, tenantOf(t))
}

func (s Services) replaceTenant(r *http.Request, c access.Caller, a *idempotency.Attempt) (answer idempotency.Answer, err error) {
	// api.ReplaceTenant, but for a setting that is null: that is one left out.
	var in struct {
		Name     string             `json:"name"`
		Settings map[string]*string `json:"settings"`
	}
	if err := httpapi.Decode(r, &in); err != nil {
		return answer, err
	}
	chosen := make(map[string]string, len(in.Settings))
	for name, value := range in.Settings {
		if value != nil {
			chosen[name] = *value
		}
	}
	return effect(r.Context(), a, func(t directory.Tenant) (idempotency.Answer, error) {
		return about(audit.Tenant, t.ID, http.StatusOK, "", tenantOf(t))
	}, func(last ...store.Step[directory.Tenant]) (directory.Tenant, error) {
		return s.Directory.ReplaceTenant(r.Context(), c, in.Name, chosen, last...)
	})
}

func (s Services) deleteTenant(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	if err := s.Directory.DeleteTenant(r.Context(), c); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s Services) getUsage(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	u, err := s.Directory.Usage(r.Context(), c)
	if err != nil {
		return err
	}
	report := api.TokenReport{TotalTokens: u.Total, MetricsByType: make(map[string]api.TypeMetrics, len(u.Tokens))}
	for kind, n := range u.Tokens {
		report.MetricsByType[kind] = api.TypeMetrics{Count: n}
	}
	return httpapi.WriteJSON(w, http.StatusOK, api.Usage{TotalTokens: u.Total, TokenReport: report})
}

func callbackSecretOf(c directory.CallbackSecret) api.CallbackSecret {
	return api.CallbackSecret{Secret: c.Secret.Reveal(), PreviousSecret: c.Previous.Reveal(), PreviousUntil: api.Time{Time: c.PreviousUntil}}
}

func (s Services) getCallbackSecret(w http.ResponseWriter, r *http.Request, c access.Caller) error {
	secret, err := s.Directory.CallbackSecret(r.Context(), c)
	if err != nil {
		return err
	}
	return httpapi.WriteJSON(w, http.StatusOK, callbackSecretOf(secret))
}

func (s Services) rotateCallbackSecret(r *http.Request, c access.Caller, a *idempotency.Attempt) (idempotency.Answer, error) {
	return effect(r.Context(), a, func(secret directory.CallbackSecret) (idempotency.Answer, error) {
		return about(audit.Tenant, c.Tenant(), http.StatusOK, "", callbackSecretOf(secret))
	}, func(last ...store.Step[directory.CallbackSecret]) (directory.CallbackSecret, error) {
		return s.Directory.RotateCallbackSecret(r.Context(), c, last...)
	})
}
