// Package event lists what happened to the entities of a tenant, and hands each
// event to those that wait for it.
//
// Events are written by store.Tx.AppendLog, in the transaction of the change. The
// package promises that each event is handed on at least once and in the order
// of the changes of its entity, and that a caller who follows the cursors gets
// each event once. It never sees data: an event has ids, types and containers.
package event

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/tokenkeep/tokenkeep/api"
	"github.com/tokenkeep/tokenkeep/internal/access"
	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/fault"
	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	// Keep is how long events are kept.
	Keep = 30 * 24 * time.Hour
	// MaxWait bounds how long List waits for an event.
	MaxWait = 20 * time.Second
	// Latest is the cursor after the newest event.
	Latest = "latest"

	maxScan   = 10_000 // events that one call reads to find those of its types
	scanPage  = 500
	pollEvery = 500 * time.Millisecond
	maxTypes  = 50
)

var (
	errNoTenant = fault.New(fault.NotFound, "no such tenant")
	errStart    = fault.Field("start", "is not a cursor of this tenant's events")
	errTypes    = fault.Field("type", "must be at most 50 types of events, such as token.created or token.*")
)

// Options are the settings of a Service.
type Options struct {
	Now func() time.Time // default time.Now
	// Acting finds what an application may do now.
	Acting func(ctx context.Context, tenant, application, session string) (access.Caller, error)
	// Receivers finds those that events of a tenant are handed to, before the
	// transaction that does so; nil for nobody.
	Receivers func(ctx context.Context, tenant string) (Receivers, error)
}

// Receivers are those that events of one tenant are handed to.
type Receivers interface {
	// Hand hands on events, in their order, in the transaction that notes them as
	// dispatched. ErrStale says that the receivers have changed and are to be read
	// again.
	Hand(ctx context.Context, tx store.Tx, events []store.Event) error
	// Handed is called when such a transaction is committed.
	Handed()
}

// ErrStale says that receivers have changed since they were read.
var ErrStale = errors.New("event: the receivers have changed")

// Service reads and dispatches events. Its methods are safe for concurrent use.
type Service struct {
	store   store.Store
	ring    *keyring.Ring
	options Options
	limits
}

// New returns the service over a store and the ring of its keys.
func New(s store.Store, ring *keyring.Ring, o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Service{store: s, ring: ring, options: o}
}

// Query is what a caller wants to know.
type Query struct {
	Types    []string // patterns; none for all
	EntityID string
	Since    time.Time // zero for the oldest; counts without a cursor only
	Start    string    // a cursor, Latest, or "" for the oldest
	Size     int
	Wait     time.Duration // how long to wait for an event when there is none
}

// Page is a part of the list. Next is where to go on, and is never empty; More
// says that there are more events now.
type Page struct {
	Events []store.Event
	Next   string
	More   bool
}

// List returns events after a cursor, oldest first. The caller needs event:read.
// The call makes one log entry, however long it waits.
func (s *Service) List(ctx context.Context, c access.Caller, q Query) (Page, error) {
	if err := c.Require(access.EventRead); err != nil {
		return Page{}, err
	}
	if len(q.Types) > maxTypes || slices.ContainsFunc(q.Types, func(t string) bool { return !audit.ValidEventPattern(t) }) {
		return Page{}, errTypes
	}
	keys, err := s.ring.For(ctx, c.Tenant())
	if errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoTenant) {
		return Page{}, errNoTenant
	}
	if err != nil {
		return Page{}, fmt.Errorf("get keys: %w", err)
	}
	if err := s.number(ctx, c.Tenant()); err != nil {
		return Page{}, err
	}
	at, err := s.position(ctx, keys, q)
	if err != nil {
		return Page{}, err
	}
	list, at, more, err := s.find(ctx, c.Tenant(), q, at)
	if err == nil && len(list) == 0 && !more && q.Wait > 0 {
		list, at, more, err = s.wait(ctx, c, q, at)
	}
	if err != nil {
		return Page{}, err
	}
	if err := s.logged(ctx, c); err != nil {
		return Page{}, err
	}
	next, err := sealCursor(keys, at)
	return Page{list, next, more}, err
}

// number gives what was appended its numbers, so that callers find their own changes.
func (s *Service) number(ctx context.Context, tenant string) error {
	err := s.store.Update(ctx, tenant, func(tx store.Tx) error { _, err := tx.NumberEvents(ctx, maxScan); return err })
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant
	}
	if err != nil {
		return fmt.Errorf("number events: %w", err)
	}
	return nil
}

// logged logs that events were read.
func (s *Service) logged(ctx context.Context, c access.Caller) error {
	entry := audit.Entry(c, s.options.Now(), audit.Event, audit.Many, audit.Read)
	err := s.store.Update(ctx, c.Tenant(), func(tx store.Tx) error { return tx.AppendLog(ctx, entry) })
	if errors.Is(err, store.ErrNoTenant) {
		return errNoTenant
	}
	return err
}

// position returns the number after which the list begins.
func (s *Service) position(ctx context.Context, keys *keyring.Keys, q Query) (at int64, err error) {
	if q.Start != "" && q.Start != Latest {
		return openCursor(keys, q.Start)
	}
	err = s.store.View(ctx, keys.Tenant(), func(tx store.Tx) error {
		head, err := tx.EventHead(ctx)
		switch {
		case err != nil:
			return err
		case q.Start == Latest:
			at = head.Last
		case !q.Since.IsZero():
			at, err = before(ctx, tx, head, store.At(q.Since))
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("find a position among the events: %w", err)
	}
	return at, nil
}

// before returns the number of the last event from before a time. Times rise with
// numbers, except for what the clocks of servers differ by.
func before(ctx context.Context, tx store.Tx, head store.EventHead, since store.Time) (int64, error) {
	oldest, err := tx.Events(ctx, store.EventFilter{}, 0, 1)
	if err != nil || len(oldest) == 0 {
		return head.Last, err
	}
	first := oldest[0].Number
	n := sort.Search(int(head.Last-first+1), func(i int) bool {
		var list []store.Event
		if err == nil {
			list, err = tx.Events(ctx, store.EventFilter{}, first+int64(i)-1, 1)
		}
		return err != nil || len(list) == 0 || list[0].CreatedAt >= since
	})
	return first + int64(n) - 1, err
}

// find returns up to q.Size events after a number, the number after which to go
// on, and whether there is more.
func (s *Service) find(ctx context.Context, tenant string, q Query, after int64) (list []store.Event, at int64, more bool, err error) {
	err = s.store.View(ctx, tenant, func(tx store.Tx) error {
		list, at, more = nil, after, true
		for scanned := 0; scanned < maxScan; {
			page, err := tx.Events(ctx, store.EventFilter{EntityID: q.EntityID}, at, scanPage)
			if err != nil {
				return err
			}
			for _, e := range page {
				if len(list) == q.Size {
					return nil
				}
				if at = e.Number; q.chooses(e) {
					list = append(list, e)
				}
			}
			if scanned += len(page); len(page) < scanPage {
				more = false
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return nil, after, false, fmt.Errorf("list events: %w", err)
	}
	return list, at, more, nil
}

func (q Query) chooses(e store.Event) bool {
	if !q.Since.IsZero() && e.CreatedAt < store.At(q.Since) {
		return false
	}
	return len(q.Types) == 0 || slices.ContainsFunc(q.Types, func(t string) bool { return audit.MatchEvent(t, e.Type) })
}

// wait is find, as soon as there is something. A caller that has lost the
// permission meanwhile gets nothing.
func (s *Service) wait(ctx context.Context, c access.Caller, q Query, after int64) ([]store.Event, int64, bool, error) {
	timer, ticker := time.NewTimer(min(q.Wait, MaxWait)), time.NewTicker(pollEvery)
	defer timer.Stop()
	defer ticker.Stop()
	for last := false; ; {
		select {
		case <-ctx.Done():
			return nil, after, false, ctx.Err()
		case <-timer.C:
			last = true
		case <-ticker.C:
		}
		list, at, more, err := s.find(ctx, c.Tenant(), q, after)
		if after = at; err != nil || len(list) == 0 && !last {
			if err != nil {
				return nil, after, false, err
			}
			continue
		}
		if len(list) > 0 && s.options.Acting != nil && c.Application() != "" {
			now, err := s.options.Acting(ctx, c.Tenant(), c.Application(), c.Session())
			if err != nil {
				return nil, after, false, err
			}
			if err := now.Require(access.EventRead); err != nil {
				return nil, after, false, err
			}
		}
		return list, at, more, nil
	}
}

// cursor is a position among the events. It is sealed with the tenant's key, so it
// can be neither made up nor used in another tenant.
type cursor struct {
	After int64 `json:"after"`
}

const cursorRecord = "events"

func sealCursor(keys *keyring.Keys, after int64) (string, error) {
	b, err := json.Marshal(cursor{after})
	if err != nil {
		return "", errors.New("event: encode a cursor")
	}
	sealed, err := keys.Seal(cursorRecord, keyring.FieldLogCursor, b)
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

func openCursor(keys *keyring.Keys, text string) (int64, error) {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return 0, errStart
	}
	b, err := keys.Open(cursorRecord, keyring.FieldLogCursor, sealed)
	if err != nil {
		return 0, errStart
	}
	var at cursor
	if json.Unmarshal(b, &at) != nil {
		return 0, errStart
	}
	return at.After, nil
}

// Wire is an event as callers and receivers get it.
func Wire(tenant string, e store.Event) api.Event {
	return api.Event{
		ID: e.ID, TenantID: tenant, Type: e.Type, EntityType: e.EntityType, EntityID: e.EntityID, Containers: e.Containers,
		ActorID: e.ActorID, ActorType: e.ActorType, CreatedAt: api.Time{Time: e.CreatedAt.Time()},
	}
}
