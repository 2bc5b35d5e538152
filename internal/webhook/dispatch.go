package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/event"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/jobs"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	lease = jobs.SendTime + 5*time.Second
	// A delivery is attempted ten times. The waits between the attempts double, and
	// come to about a day.
	maxAttempts = 10
	firstWait   = 169 * time.Second
	lastWait    = firstWait << (maxAttempts - 2)
	// life is how long an event may wait for its turn.
	life = 30 * 24 * time.Hour
)

// Kinds returns the kind of jobs that belongs to webhooks: an event that one of them
// has to get. The handler counts attempts itself, because a delivery that fails is
// kept for its list, and lets the next one of its entity go.
func (s *Service) Kinds() []jobs.Kind {
	return []jobs.Kind{{
		Name: store.ParcelWebhook, Handle: s.deliver, Life: life, Lease: lease,
		AtOnce: 64, PerTenant: 32, Spare: 16,
		Retry: jobs.Schedule{First: firstWait, Most: lastWait},
	}}
}

// Receivers reads the webhooks of a tenant, for events to be handed to: they are
// opened outside the transaction that does so.
func (s *Service) Receivers(ctx context.Context, tenant string) (event.Receivers, error) {
	list, err := s.definitions.FindAll(ctx, tenant)
	if errors.Is(err, fault.NotFound) {
		return receivers{s, nil}, nil // the tenant is being deleted
	}
	return receivers{s, list}, err
}

// receivers are the webhooks of a tenant, as they were read.
type receivers struct {
	service *Service
	list    []Webhook
}

// current reports whether no webhook has changed since.
func (r receivers) current(ctx context.Context, tx store.Tx) (bool, error) {
	rows, err := tx.Definitions(ctx, store.DefinitionFilter{Kind: kind.Row}, store.Page{Limit: len(r.list) + 1})
	if err != nil {
		return false, err
	}
	return slices.EqualFunc(rows, r.list, func(d store.Definition, w Webhook) bool { return d.ID == w.ID && d.Version == w.Version }), nil
}

// Hand makes a job for each event and each webhook that takes it.
func (r receivers) Hand(ctx context.Context, tx store.Tx, events []store.Event) error {
	if ok, err := r.current(ctx, tx); err != nil {
		return err
	} else if !ok {
		return event.ErrStale
	}
	for _, w := range r.list {
		if State(w) != Enabled {
			continue
		}
		for _, e := range events {
			// A test goes to its webhook when it is requested. Events from before the
			// webhook was created are not for it.
			if e.Type == audit.EventWebhookTest || !takes(w, e.Type) || e.CreatedAt < store.At(w.CreatedAt) {
				continue
			}
			if err := r.service.options.Jobs.Insert(ctx, tx, r.service.job(w.ID, e, lane(w.ID, e.EntityID))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Handed implements event.Receivers.
func (r receivers) Handed() { r.service.options.Jobs.Wake() }

// job is the job of an event. Its owner is the number of the event. Jobs of a lane
// are done in their order, so the job that comes first must be found at once: the
// store lists newest first, and so the time of creation falls with the number.
func (s *Service) job(webhook string, e store.Event, lane string) store.Parcel {
	p := s.options.Jobs.Record(store.ParcelWebhook, deliveryID(webhook, e.ID))
	p.Group, p.Owner, p.CreatedAt = lane, strconv.FormatInt(e.Number, 10), store.Time(1<<62-e.Number)
	return p
}

// deliveryID is the id of the rows of one event and one webhook.
func deliveryID(webhook, event string) string { return webhook + "." + event }

// lane is what orders the events of one entity for one webhook.
func lane(webhook, entity string) string {
	sum := sha256.Sum256([]byte(entity))
	return webhook + "/" + hex.EncodeToString(sum[:12])
}

// head returns the job that comes first in a lane; false when there is none.
func head(ctx context.Context, tx store.Tx, lane string) (store.Parcel, bool, error) {
	list, err := tx.Parcels(ctx, store.ParcelFilter{Kind: store.ParcelWebhook, Group: lane}, store.Page{Limit: 1})
	if err != nil || len(list) == 0 {
		return store.Parcel{}, false, err
	}
	return list[0], true, nil
}

// eventOf returns the event of a job; false when it is gone.
func eventOf(ctx context.Context, tx store.Tx, p store.Parcel) (store.Event, bool, error) {
	number, err := strconv.ParseInt(p.Owner, 10, 64)
	if err != nil {
		return store.Event{}, false, fmt.Errorf("read the number of an event: %w", store.ErrDamaged)
	}
	list, err := tx.Events(ctx, store.EventFilter{}, number-1, 1)
	if err != nil || len(list) == 0 || list[0].Number != number {
		return store.Event{}, false, err
	}
	return list[0], true, nil
}
