package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// The states of deliveries.
const (
	Retrying  = "retrying"
	Delivered = "delivered"
	Failed    = "failed"
)

// KeepDeliveries is how long the list has a delivery after its last attempt.
const KeepDeliveries = 7 * 24 * time.Hour

// Delivery tells how the attempts to send an event to a webhook went. Its id is that
// of the event, and of all messages about it.
type Delivery struct {
	ID          string
	WebhookID   string
	EventType   string
	EntityType  string
	EntityID    string
	State       string
	Attempts    int
	Status      int // of the last answer; 0 when there was none
	Took        time.Duration
	AttemptedAt time.Time // zero when there was no attempt

	number int64 // of the event
}

// note is a delivery as its row has it. It has no data, so it is not sealed.
type note struct {
	Number      int64      `json:"number,omitempty"`
	EventType   string     `json:"event_type"`
	EntityType  string     `json:"entity_type"`
	EntityID    string     `json:"entity_id"`
	State       string     `json:"state"`
	Attempts    int        `json:"attempts"`
	Status      int        `json:"status,omitempty"`
	Micros      int64      `json:"micros,omitempty"`
	AttemptedAt store.Time `json:"attempted_at,omitempty"`
}

// keep stores a delivery in place of what was stored of it.
func (s *Service) keep(ctx context.Context, tx store.Tx, d Delivery) error {
	n := note{Number: d.number, EventType: d.EventType, EntityType: d.EntityType, EntityID: d.EntityID, State: d.State, Attempts: d.Attempts, Status: d.Status, Micros: d.Took.Microseconds()}
	if !d.AttemptedAt.IsZero() {
		n.AttemptedAt = store.At(d.AttemptedAt)
	}
	owner, err := json.Marshal(n)
	if err != nil {
		return errors.New("webhook: encode a delivery")
	}
	now := s.options.Now()
	p := store.Parcel{
		Kind: store.ParcelWebhookDelivery, ID: deliveryID(d.WebhookID, d.ID), Group: d.WebhookID, Owner: string(owner),
		CreatedAt: store.At(now), ExpiresAt: store.At(now.Add(KeepDeliveries)), Version: 1,
	}
	old, err := tx.Parcel(ctx, p.Kind, p.ID)
	if errors.Is(err, store.ErrNotFound) {
		return tx.InsertParcel(ctx, p)
	}
	if err != nil {
		return fmt.Errorf("read a delivery: %w", err)
	}
	p.Version = old.Version + 1
	return tx.ReplaceParcel(ctx, p)
}

// kept returns a delivery.
func (s *Service) kept(ctx context.Context, tx store.Tx, webhook, id string) (Delivery, error) {
	p, err := tx.Parcel(ctx, store.ParcelWebhookDelivery, deliveryID(webhook, id))
	if errors.Is(err, store.ErrNotFound) {
		return Delivery{}, errNoDelivery
	}
	if err != nil {
		return Delivery{}, fmt.Errorf("read a delivery: %w", err)
	}
	return deliveryOf(p)
}

func deliveryOf(p store.Parcel) (Delivery, error) {
	var n note
	if len(p.ID) <= len(p.Group) || json.Unmarshal([]byte(p.Owner), &n) != nil {
		return Delivery{}, fmt.Errorf("read a delivery: %w", store.ErrDamaged)
	}
	d := Delivery{
		ID: p.ID[len(p.Group)+1:], WebhookID: p.Group, EventType: n.EventType, EntityType: n.EntityType, EntityID: n.EntityID, State: n.State, Attempts: n.Attempts,
		Status: n.Status, Took: time.Duration(n.Micros) * time.Microsecond, number: n.Number,
	}
	if !n.AttemptedAt.IsZero() {
		d.AttemptedAt = n.AttemptedAt.Time()
	}
	return d, nil
}

// Deliveries returns a page of the deliveries to a webhook that had an attempt, the
// one whose first attempt is newest first, and how many there are. The caller needs
// webhook:read.
func (s *Service) Deliveries(ctx context.Context, c access.Caller, id string, page store.Page) (list []Delivery, total int64, err error) {
	if err := c.Require(access.WebhookRead); err != nil {
		return nil, 0, err
	}
	filter := store.ParcelFilter{Kind: store.ParcelWebhookDelivery, Group: id}
	err = s.update(ctx, c.Tenant(), func(tx store.Tx) error {
		list = nil
		if _, err := tx.Definition(ctx, kind.Row, id); errors.Is(err, store.ErrNotFound) {
			return errNoWebhook
		} else if err != nil {
			return err
		}
		rows, err := tx.Parcels(ctx, filter, page)
		if err != nil {
			return fmt.Errorf("list deliveries: %w", err)
		}
		if total, err = tx.CountParcels(ctx, filter); err != nil {
			return fmt.Errorf("count deliveries: %w", err)
		}
		for _, p := range rows {
			d, err := deliveryOf(p)
			if err != nil {
				return err
			}
			list = append(list, d)
		}
		return tx.AppendLog(ctx, audit.EntryPart(c, s.options.Now(), audit.Webhook, id, "deliveries", audit.Read))
	})
	if err != nil {
		return nil, 0, err
	}
	return list, total, nil
}
