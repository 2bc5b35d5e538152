package openapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/client"
	"github.com/tokenkeep/tokenkeep/internal/waittest"
)

// walkWebhooks calls every operation on events and webhooks.
func walkWebhooks(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	to := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer to.Close()
	set := api.SetWebhook{Name: "hook", URL: to.URL, Events: []string{"webhook.updated"}}
	w, err := c.Webhooks.Create(ctx, set)
	if err != nil || w.Secret == "" || w.State != "enabled" {
		t.Fatalf("Webhooks.Create = %v, %v", w.ID, err)
	}
	if got, err := c.Webhooks.Get(ctx, w.ID); err != nil || got.Secret != "" || got.URL != to.URL {
		t.Errorf("Webhooks.Get = %v, %v", got, err)
	}
	if got, err := c.Webhooks.Test(ctx, w.ID); err != nil || got.State != "delivered" || got.ResponseStatus != http.StatusNoContent {
		t.Errorf("Webhooks.Test = %+v, %v", got, err)
	}
	if got, err := c.Webhooks.RotateSecret(ctx, w.ID); err != nil || got.Secret == w.Secret || got.PreviousSecretUntil == nil {
		t.Errorf("Webhooks.RotateSecret = %v, %v", got.ID, err)
	}
	set.Name = "other"
	if got, err := c.Webhooks.Replace(ctx, w.ID, set); err != nil || got.Name != "other" {
		t.Errorf("Webhooks.Replace = %v, %v", got, err)
	}
	var delivered api.Delivery
	waittest.Until(t, "the delivery of webhook.updated", func() bool {
		for d, err := range c.Webhooks.Deliveries(ctx, w.ID) {
			if err != nil {
				t.Fatal(err)
			}
			if d.EventType == "webhook.updated" && d.State == "delivered" {
				delivered = d
			}
		}
		return delivered.ID != ""
	})
	if got, err := c.Webhooks.Resend(ctx, w.ID, delivered.ID); err != nil || got.ID != delivered.ID {
		t.Errorf("Webhooks.Resend = %+v, %v", got, err)
	}
	count := 0
	for got, err := range c.Webhooks.List(ctx, client.WebhookFilter{IDs: []string{w.ID}, Name: "oth*"}) {
		if count++; err != nil || got.ID != w.ID {
			t.Errorf("Webhooks.List = %v, %v", got, err)
		}
	}
	if count != 1 {
		t.Errorf("Webhooks.List has %d, want 1", count)
	}
	if err := c.Webhooks.Delete(ctx, w.ID); err != nil {
		t.Errorf("Webhooks.Delete: %v", err)
	}
	var types []string
	for e, err := range c.Events.List(ctx, client.EventFilter{Types: []string{"webhook.*"}, EntityID: w.ID, Since: time.Now().Add(-time.Hour)}) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, e.Type)
	}
	if want := []string{"webhook.created", "webhook.test", "webhook.secret_rotated", "webhook.updated", "webhook.deleted"}; !slices.Equal(types, want) {
		t.Errorf("Events.List = %v, want %v", types, want)
	}
}
