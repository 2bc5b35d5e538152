package client

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
)

var (
	listEvents          = row{method: "GET", path: "/events"}
	createWebhook       = row{method: "POST", path: "/webhooks", keyed: true}
	listWebhooks        = row{method: "GET", path: "/webhooks"}
	getWebhook          = row{method: "GET", path: "/webhooks/{id}"}
	replaceWebhook      = row{method: "PUT", path: "/webhooks/{id}", keyed: true}
	deleteWebhook       = row{method: "DELETE", path: "/webhooks/{id}"}
	rotateWebhookSecret = row{method: "POST", path: "/webhooks/{id}/secret/rotate", keyed: true}
	testWebhook         = row{method: "POST", path: "/webhooks/{id}/test"}
	listDeliveries      = row{method: "GET", path: "/webhooks/{id}/deliveries"}
	resendDelivery      = row{method: "POST", path: "/webhooks/{id}/deliveries/{delivery_id}/resend"}
)

// Events are what happened to the entities of a tenant.
type Events struct{ caller *caller }

// EventFilter chooses events. The zero value takes all.
type EventFilter struct {
	Types    []string // such as token.created or token.*
	EntityID string
	Since    time.Time // made then or later
}

func (f EventFilter) query() url.Values {
	q := url.Values{}
	for _, t := range f.Types {
		q.Add("type", t)
	}
	if f.EntityID != "" {
		q.Set("entity_id", f.EntityID)
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339Nano))
	}
	return q
}

// LatestEvent is the cursor after the newest event.
const LatestEvent = "latest"

// Page returns what follows a cursor: "" for the oldest events, LatestEvent for those
// that come, then what the page before named as next. A call that finds nothing waits
// for an event, at most 20 seconds. A size of 0 is the server's default. It takes
// event:read.
func (e Events) Page(ctx context.Context, f EventFilter, start string, size int, wait time.Duration) (api.EventList, error) {
	q := withPage(f.query(), 0, size)
	if start != "" {
		q.Set("start", start)
	}
	if wait > 0 {
		q.Set("wait", strconv.Itoa(int(wait/time.Second)))
	}
	return get[api.EventList](ctx, e.caller, request{row: listEvents, query: q})
}

// List goes through all events that the filter takes, oldest first, and asks for
// pages as it goes. An error comes last. It takes event:read.
func (e Events) List(ctx context.Context, f EventFilter) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for start := ""; ; {
			page, err := e.Page(ctx, f, start, pageSize, 0)
			if err != nil {
				yield(api.Event{}, err)
				return
			}
			for _, one := range page.Data {
				if !yield(one, nil) {
					return
				}
			}
			if next := page.Pagination.Next; !page.Pagination.More || next == start {
				return
			} else {
				start = next
			}
		}
	}
}

// FollowingEvents says how Events.Follow goes about it. The zero value will do.
type FollowingEvents struct {
	// Start is the cursor to begin after; default LatestEvent, or the time of the
	// filter where that has one.
	Start string
	// Reached, unless it is nil, is called with the cursor after the events that were
	// handed on.
	Reached func(cursor string)
	// Trouble, unless it is nil, is told of errors that may pass, before Follow waits
	// and calls again.
	Trouble func(error)
}

// Follow goes through the events that the filter takes as they come, oldest first and
// each one once, until ctx ends. A server that gives no answer, or asks to wait, is
// called again for as long as it takes; any other error ends it and comes last. It
// takes event:read.
func (e Events) Follow(ctx context.Context, f EventFilter, o FollowingEvents) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		start := o.Start
		if start == "" && f.Since.IsZero() {
			start = LatestEvent
		}
		const longPoll = 20 * time.Second
		for tried, wait := 0, time.Duration(0); ; {
			page, err := e.Page(ctx, f, start, pageSize, wait)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !passes(err):
				yield(api.Event{}, err)
				return
			case err != nil:
				if o.Trouble != nil {
					o.Trouble(err)
				}
				if e.caller.sleep(ctx, pauseAfter(err, tried)) != nil {
					return
				}
				tried++
				continue
			}
			for _, one := range page.Data {
				if !yield(one, nil) {
					return
				}
			}
			start, tried, wait = page.Pagination.Next, 0, longPoll
			if o.Reached != nil {
				o.Reached(start)
			}
		}
	}
}

// pauseAfter is how long to wait after an error that may pass.
func pauseAfter(err error, tried int) time.Duration {
	pause := min(2*time.Second<<min(tried, 10), longestPause)
	var refusal *Error
	if errors.As(err, &refusal) {
		pause = max(pause, cmp.Or(refusal.RetryAfter, pause))
	}
	return pause
}

// Webhooks are the addresses that get events of a tenant.
type Webhooks struct{ caller *caller }

// WebhookFilter chooses webhooks. The zero value takes all.
type WebhookFilter struct {
	IDs  []string
	Name string // * stands for any run; without * a part of the name; case ignored
}

// Create makes a webhook. The answer has its secret, which is not shown again. It
// takes webhook:create.
func (w Webhooks) Create(ctx context.Context, in api.SetWebhook, options ...CallOption) (api.Webhook, error) {
	return get[api.Webhook](ctx, w.caller, request{row: createWebhook, in: in}, options...)
}

// Get returns a webhook without its secret. It takes webhook:read.
func (w Webhooks) Get(ctx context.Context, id string) (api.Webhook, error) {
	return get[api.Webhook](ctx, w.caller, request{row: getWebhook, ids: []string{id}})
}

// List goes through all webhooks that the filter takes, newest first, and asks for
// pages as it goes. An error comes last. It takes webhook:read.
func (w Webhooks) List(ctx context.Context, f WebhookFilter) iter.Seq2[api.Webhook, error] {
	return each(func(number int) (api.List[api.Webhook], error) {
		return w.Page(ctx, f, number, pageSize)
	}, func(x api.Webhook) string { return x.ID })
}

// Page returns one page of them, from 1. A size of 0 is the server's default.
func (w Webhooks) Page(ctx context.Context, f WebhookFilter, number, size int) (api.List[api.Webhook], error) {
	return get[api.List[api.Webhook]](ctx, w.caller, request{row: listWebhooks, query: withPage(named(f.IDs, f.Name), number, size)})
}

// Replace changes everything except the secret. It takes webhook:update.
func (w Webhooks) Replace(ctx context.Context, id string, in api.SetWebhook, options ...CallOption) (api.Webhook, error) {
	return get[api.Webhook](ctx, w.caller, request{row: replaceWebhook, ids: []string{id}, in: in}, options...)
}

// Delete removes a webhook. It takes webhook:delete.
func (w Webhooks) Delete(ctx context.Context, id string) error {
	return w.caller.call(ctx, request{row: deleteWebhook, ids: []string{id}}, nil, nil)
}

// RotateSecret gives a webhook a new secret, which is in the answer and is not shown
// again. The old one signs too for a day. It takes webhook:update.
func (w Webhooks) RotateSecret(ctx context.Context, id string, options ...CallOption) (api.Webhook, error) {
	return get[api.Webhook](ctx, w.caller, request{row: rotateWebhookSecret, ids: []string{id}}, options...)
}

// Test sends a message to a webhook at once and returns how that went. It takes
// webhook:update.
func (w Webhooks) Test(ctx context.Context, id string) (api.Delivery, error) {
	return get[api.Delivery](ctx, w.caller, request{row: testWebhook, ids: []string{id}})
}

// Deliveries goes through the deliveries to a webhook, newest first, and asks for
// pages as it goes. An error comes last. It takes webhook:read.
func (w Webhooks) Deliveries(ctx context.Context, id string) iter.Seq2[api.Delivery, error] {
	return each(func(number int) (api.List[api.Delivery], error) {
		return w.DeliveriesPage(ctx, id, number, pageSize)
	}, func(d api.Delivery) string { return d.ID })
}

// DeliveriesPage returns one page of them, from 1. A size of 0 is the server's default.
func (w Webhooks) DeliveriesPage(ctx context.Context, id string, number, size int) (api.List[api.Delivery], error) {
	return get[api.List[api.Delivery]](ctx, w.caller, request{row: listDeliveries, ids: []string{id}, query: withPage(url.Values{}, number, size)})
}

// Resend sends the event of a delivery again. It takes webhook:update.
func (w Webhooks) Resend(ctx context.Context, id, delivery string) (api.Delivery, error) {
	return get[api.Delivery](ctx, w.caller, request{row: resendDelivery, ids: []string{id, delivery}})
}
