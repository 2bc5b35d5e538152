package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/event"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// failingFor is how long a receiver may fail before its webhook is disabled.
	failingFor = 5 * 24 * time.Hour
	settling   = 5 * time.Second
	// numberAtOnce is how many events one statement numbers.
	numberAtOnce = 10_000

	outcomeDelivered = "delivered"
	outcomeRefused   = "refused"

	reasonFailing = "the receiver has failed for five days"
	reasonGone    = "the receiver returned 410"
)

// failingMark names the mark that says since when a receiver fails.
func failingMark(id string) string { return "webhook/" + id }

// deliver sends an event to a webhook, if no earlier event of its entity waits.
func (s *Service) deliver(ctx context.Context, j jobs.Job) (jobs.Verdict, error) {
	webhook, _, _ := strings.Cut(j.ID, ".")
	w, err := s.definitions.Find(ctx, j.Tenant, webhook)
	if errors.Is(err, errNoWebhook) {
		return s.end(ctx, j, nil)
	}
	if err != nil { // our own trouble does not use an attempt up
		return jobs.GiveBack(lease), fmt.Errorf("find a webhook: %w", err)
	}
	e, first, found := store.Event{}, false, false
	err = s.store.View(ctx, j.Tenant, func(tx store.Tx) (err error) {
		if first, err = leads(ctx, tx, j); err != nil || !first {
			return err
		}
		e, found, err = eventOf(ctx, tx, j.Parcel)
		return err
	})
	switch {
	case err != nil:
		return jobs.GiveBack(lease), fmt.Errorf("read an event: %w", err)
	case !first:
		return s.rest(ctx, j)
	case !found:
		return s.end(ctx, j, nil)
	}
	d := Delivery{ID: e.ID, WebhookID: w.ID, EventType: e.Type, EntityType: e.EntityType, EntityID: e.EntityID, State: Failed, Attempts: j.Attempts, number: e.Number}
	if State(w) != Enabled {
		d.Attempts-- // this one is not made
		return s.end(ctx, j, &d)
	}
	receipt := s.send(ctx, w, e)
	d.Status, d.Took, d.AttemptedAt = receipt.Status, receipt.Took, s.options.Now()
	switch {
	case receipt.Taken():
		d.State = Delivered
		return s.end(ctx, j, &d)
	case ctx.Err() != nil:
		return jobs.GiveBack(0), nil //nolint:nilerr // the server stops: that is no error, and no fault of the receiver
	}
	return s.refused(ctx, j, d)
}

// leads reports whether a job comes first in its lane.
func leads(ctx context.Context, tx store.Tx, j jobs.Job) (bool, error) {
	first, found, err := head(ctx, tx, j.Group)
	return !found || first.ID == j.ID, err
}

// rest leaves a job to the one before it in its lane, which wakes it.
func (s *Service) rest(ctx context.Context, j jobs.Job) (jobs.Verdict, error) {
	first := false
	err := s.store.Update(ctx, j.Tenant, func(tx store.Tx) (err error) {
		if first, err = leads(ctx, tx, j); err != nil || first {
			return err
		}
		return j.Rest(ctx, tx)
	})
	if err != nil {
		return jobs.GiveBack(lease), err
	}
	if first { // the one before it has ended meanwhile
		return jobs.GiveBack(0), nil
	}
	return jobs.Replaced, nil
}

// send makes one attempt.
func (s *Service) send(ctx context.Context, w Webhook, e store.Event) jobs.Receipt {
	body, err := json.Marshal(event.Wire(w.TenantID, e))
	if err != nil {
		return jobs.Receipt{}
	}
	now := s.options.Now
	receipt := jobs.Sender{Now: now, Transport: s.options.Transport}.Deliver(ctx, w.TenantID, jobs.Message{
		ID: e.ID, URL: URL(w), Body: body, Secrets: secrets(w, now()),
	})
	outcome := outcomeRefused
	if receipt.Taken() {
		outcome = outcomeDelivered
	}
	s.attempts.WithLabelValues(outcome).Inc()
	return receipt
}

// refused notes an attempt that the receiver did not take. The last one ends the
// job, and a receiver that is gone or has failed for long disables the webhook.
func (s *Service) refused(ctx context.Context, j jobs.Job, d Delivery) (jobs.Verdict, error) {
	gone := d.Status == http.StatusGone
	if j.Attempts >= maxAttempts || gone {
		verdict, err := s.end(ctx, j, &d)
		if gone {
			err = errors.Join(err, s.disable(context.WithoutCancel(ctx), j.Tenant, d.WebhookID, reasonGone))
		}
		return verdict, err
	}
	d.State = Retrying
	long := false
	err := s.store.Update(ctx, j.Tenant, func(tx store.Tx) (err error) {
		if long, err = s.failing(ctx, tx, d.WebhookID); err != nil {
			return err
		}
		return s.keep(ctx, tx, d)
	})
	if err == nil && long {
		err = s.disable(ctx, j.Tenant, d.WebhookID, reasonFailing)
	}
	return jobs.Failed, err
}

// failing notes that a receiver fails, and reports whether it has for long.
func (s *Service) failing(ctx context.Context, tx store.Tx, webhook string) (long bool, err error) {
	since, err := tx.Mark(ctx, failingMark(webhook))
	if errors.Is(err, store.ErrNotFound) {
		return false, tx.PutMark(ctx, failingMark(webhook), []byte(s.options.Now().UTC().Format(time.RFC3339)))
	}
	if err != nil {
		return false, err
	}
	at, err := time.Parse(time.RFC3339, string(since))
	if err != nil {
		return false, fmt.Errorf("read since when a receiver fails: %w", store.ErrDamaged)
	}
	return s.options.Now().Sub(at) >= failingFor, nil
}

// end ends a job, keeps how its delivery went, and wakes the next one of its lane.
// d is nil for a delivery that nobody can ask for.
func (s *Service) end(ctx context.Context, j jobs.Job, d *Delivery) (jobs.Verdict, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	long := false
	err := s.store.Update(ctx, j.Tenant, func(tx store.Tx) (err error) {
		if err := j.Replace(ctx, tx); err != nil {
			return err
		}
		if d != nil {
			if long, err = s.settle(ctx, tx, *d); err != nil {
				return err
			}
		}
		next, found, err := head(ctx, tx, j.Group)
		if err != nil || !found || !next.DueAt.IsZero() {
			return err
		}
		return s.options.Jobs.Due(ctx, tx, next)
	})
	if err != nil {
		return jobs.GiveBack(lease), fmt.Errorf("end a delivery: %w", err)
	}
	s.options.Jobs.Wake()
	if long {
		return jobs.Replaced, s.disable(ctx, j.Tenant, d.WebhookID, reasonFailing)
	}
	return jobs.Replaced, nil
}

// settle keeps how a delivery ended, and what that says of its receiver.
func (s *Service) settle(ctx context.Context, tx store.Tx, d Delivery) (long bool, err error) {
	switch _, marked := tx.Mark(ctx, failingMark(d.WebhookID)); {
	case marked != nil && !errors.Is(marked, store.ErrNotFound):
		return false, marked
	case d.State == Delivered && marked == nil:
		err = tx.PutMark(ctx, failingMark(d.WebhookID), nil)
	case d.State == Failed && !d.AttemptedAt.IsZero():
		long, err = s.failing(ctx, tx, d.WebhookID)
	}
	if err != nil {
		return false, err
	}
	return long, s.keep(ctx, tx, d)
}

// Test sends a message of the type webhook.test at once, and returns how that went.
// The caller needs webhook:update. It is one attempt, for which nothing waits.
func (s *Service) Test(ctx context.Context, c access.Caller, id string) (Delivery, error) {
	if err := c.Require(access.WebhookUpdate); err != nil {
		return Delivery{}, err
	}
	w, err := s.definitions.Find(ctx, c.Tenant(), id)
	if err != nil {
		return Delivery{}, err
	}
	entry := audit.EntryThat(c, s.options.Now(), audit.Webhook, id, audit.Use, "tested")
	entry.Event = audit.EventWebhookTest
	var e store.Event
	// The entry commits first: what was sent cannot be taken back.
	if err := s.update(ctx, c.Tenant(), func(tx store.Tx) (err error) {
		e, err = announced(ctx, tx, entry)
		return err
	}); err != nil {
		return Delivery{}, err
	}
	receipt := s.send(ctx, w, e)
	d := Delivery{
		ID: e.ID, WebhookID: id, EventType: e.Type, EntityType: e.EntityType, EntityID: id, State: Failed, Attempts: 1,
		Status: receipt.Status, Took: receipt.Took, AttemptedAt: s.options.Now(), number: e.Number,
	}
	if receipt.Taken() {
		d.State = Delivered
	}
	return d, s.update(ctx, c.Tenant(), func(tx store.Tx) error { return s.keep(ctx, tx, d) })
}

// announced appends an entry and returns its event, which is then the newest.
func announced(ctx context.Context, tx store.Tx, entry store.LogEntry) (store.Event, error) {
	if err := tx.AppendLog(ctx, entry); err != nil {
		return store.Event{}, err
	}
	for n := numberAtOnce; n == numberAtOnce; {
		var err error
		if n, err = tx.NumberEvents(ctx, numberAtOnce); err != nil {
			return store.Event{}, fmt.Errorf("number events: %w", err)
		}
	}
	head, err := tx.EventHead(ctx)
	if err != nil {
		return store.Event{}, err
	}
	list, err := tx.Events(ctx, store.EventFilter{}, head.Last-1, 1)
	if err == nil && (len(list) == 0 || list[0].ID != entry.ID) {
		err = fmt.Errorf("find the event of a test: %w", store.ErrDamaged)
	}
	if err != nil {
		return store.Event{}, err
	}
	return list[0], nil
}

// update is store.Update for requests.
func (s *Service) update(ctx context.Context, tenant string, fn func(store.Tx) error) error {
	err := s.store.Update(ctx, tenant, fn)
	if errors.Is(err, store.ErrNoTenant) {
		return errNoWebhook
	}
	return err
}

// Resend sends the event of a delivery again, under the same id. One that is waiting
// for its next attempt is attempted at once. The caller needs webhook:update.
func (s *Service) Resend(ctx context.Context, c access.Caller, id, delivery string) (d Delivery, err error) {
	if err := c.Require(access.WebhookUpdate); err != nil {
		return d, err
	}
	w, err := s.definitions.Find(ctx, c.Tenant(), id)
	if err != nil {
		return d, err
	}
	if State(w) != Enabled {
		return d, errDisabled
	}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		if d, err = s.kept(ctx, tx, id, delivery); err != nil {
			return err
		}
		if err := s.again(ctx, tx, d); err != nil {
			return err
		}
		return tx.AppendLog(ctx, audit.Quiet(audit.EntryThat(c, s.options.Now(), audit.Webhook, id, audit.Use, "delivery sent again")))
	})
	if err == nil {
		s.options.Jobs.Wake()
	}
	return d, err
}

// again makes the job of a delivery due, or another one when it has ended. That one
// is in a lane of its own: it waits for nobody.
func (s *Service) again(ctx context.Context, tx store.Tx, d Delivery) error {
	p, err := tx.Parcel(ctx, store.ParcelWebhook, deliveryID(d.WebhookID, d.ID))
	if err == nil {
		return s.options.Jobs.Due(ctx, tx, p)
	}
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return s.options.Jobs.Insert(ctx, tx, s.job(d.WebhookID, store.Event{ID: d.ID, Number: d.number}, lane(d.WebhookID, "again/"+d.ID)))
}
