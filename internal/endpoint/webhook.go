package endpoint

import (
	"net/http"
	"net/url"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/idempotency"
	"github.com/tokenkeep/tokenkeep/internal/response"
	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/webhook"
)

// webhookOf shows a webhook without its secret.
func webhookOf(w webhook.Webhook) api.Webhook {
	return api.Webhook{
		ID: w.ID, TenantID: w.TenantID, Name: w.Name, URL: webhook.URL(w), Events: webhook.Events(w), State: webhook.State(w), DisabledReason: webhook.DisabledReason(w),
		PreviousSecretUntil: timeOrNone(webhook.PreviousUntil(w)), Made: madeOfDefinition(w.Definition),
	}
}

// withSecret shows a webhook with its secret, once.
func withSecret(w webhook.Webhook) api.Webhook {
	out := webhookOf(w)
	out.Secret = webhook.Secret(w).Reveal()
	return out
}

func timeOrNone(t time.Time) *api.Time {
	if t.IsZero() {
		return nil
	}
	return &api.Time{Time: t}
}

func deliveryOf(d webhook.Delivery) api.Delivery {
	return api.Delivery{
		ID: d.ID, WebhookID: d.WebhookID, EventType: d.EventType, EntityType: d.EntityType, EntityID: d.EntityID, State: d.State, Attempts: d.Attempts,
		ResponseStatus: d.Status, LatencyMS: d.Took.Milliseconds(), AttemptedAt: timeOrNone(d.AttemptedAt),
	}
}

func (s Services) createWebhook(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(w webhook.Webhook) (*response.Response, error) {
		return about(audit.Webhook, w.ID, http.StatusCreated, "/webhooks/"+w.ID, withSecret(w))
	}, func(last ...store.Step[webhook.Webhook]) (webhook.Webhook, error) {
		return s.Webhooks.Create(r.Context(), c, in, last...)
	})
}

func (s Services) getWebhook(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	w, err := s.Webhooks.Get(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, webhookOf(w))
}

func (s Services) listWebhooks(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(q url.Values, page store.Page) ([]webhook.Webhook, int64, error) {
		return s.Webhooks.List(r.Context(), c, definitionFilterOf(q), page)
	}, webhookOf)
}

func (s Services) replaceWebhook(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	in, err := bodyOf(r)
	if err != nil {
		return nil, err
	}
	return effect(r.Context(), a, func(w webhook.Webhook) (*response.Response, error) {
		return about(audit.Webhook, w.ID, http.StatusOK, "", webhookOf(w))
	}, func(last ...store.Step[webhook.Webhook]) (webhook.Webhook, error) {
		return s.Webhooks.Replace(r.Context(), c, r.PathValue("id"), in, last...)
	})
}

func (s Services) rotateWebhookSecret(r *http.Request, c access.Caller, a *idempotency.Attempt) (*response.Response, error) {
	return effect(r.Context(), a, func(w webhook.Webhook) (*response.Response, error) {
		return about(audit.Webhook, w.ID, http.StatusOK, "", withSecret(w))
	}, func(last ...store.Step[webhook.Webhook]) (webhook.Webhook, error) {
		return s.Webhooks.RotateSecret(r.Context(), c, r.PathValue("id"), last...)
	})
}

func (s Services) deleteWebhook(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	if err := s.Webhooks.Delete(r.Context(), c, r.PathValue("id")); err != nil {
		return nil, err
	}
	return &response.Response{Status: http.StatusNoContent}, nil
}

func (s Services) testWebhook(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	d, err := s.Webhooks.Test(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusOK, deliveryOf(d))
}

func (s Services) listDeliveries(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	return listed(r, func(_ url.Values, page store.Page) ([]webhook.Delivery, int64, error) {
		return s.Webhooks.Deliveries(r.Context(), c, r.PathValue("id"), page)
	}, deliveryOf)
}

func (s Services) resendDelivery(r *http.Request, c access.Caller, _ *idempotency.Attempt) (*response.Response, error) {
	d, err := s.Webhooks.Resend(r.Context(), c, r.PathValue("id"), r.PathValue("delivery_id"))
	if err != nil {
		return nil, err
	}
	return respond(http.StatusAccepted, deliveryOf(d))
}
