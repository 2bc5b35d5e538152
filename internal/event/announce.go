package event

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// announceEvery is how often a limit that is reached again and again, or the signing
// of the log, has an event.
const announceEvery = time.Hour

// Reached is called when a tenant reaches a limit. It keeps that in memory until
// Announce writes the event: the transaction that was refused is gone. What a node
// that ends has not announced is lost.
func (s *Service) Reached(tenant, limit string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reached == nil {
		s.reached = make(map[reached]bool)
	}
	if len(s.reached) < maxReached {
		s.reached[reached{tenant, limit}] = true
	}
}

// maxReached bounds what is kept in memory.
const maxReached = 10_000

type reached struct{ tenant, limit string }

// limits is what waits to be announced.
type limits struct {
	mu      sync.Mutex // guards reached
	reached map[reached]bool
}

func (l *limits) take() map[reached]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.reached
	l.reached = nil
	return all
}

// Announce writes the events of limits that tenants have reached, each at most once
// an hour.
func (s *Service) Announce(ctx context.Context) error {
	var errs []error
	for r := range s.take() {
		errs = append(errs, s.announce(ctx, r.tenant, "limit/"+r.limit, func(store.Tx, string) (store.LogEntry, error) {
			return audit.Announced(r.tenant, s.options.Now(), audit.EventLimitReached, audit.Tenant, r.limit, audit.Use, "limit reached"), nil
		}))
	}
	return errors.Join(errs...)
}

// Checkpoints writes an event for each tenant whose log has batches that were signed
// since the last one, at most once an hour.
func (s *Service) Checkpoints(ctx context.Context) error {
	var errs []error
	err := s.eachTenant(ctx, func(tenant string) {
		errs = append(errs, s.announce(ctx, tenant, "checkpoint", func(tx store.Tx, before string) (store.LogEntry, error) {
			last, err := tx.LastLogBatch(ctx)
			if err != nil {
				return store.LogEntry{}, err
			}
			// The entry of the announcement itself is signed too. A batch that has
			// nothing else is not announced, or there would be no end.
			if announced, err := strconv.ParseInt(before, 10, 64); err == nil && (last.Number == announced || last.Number == announced+1 && last.Count == 1) {
				return store.LogEntry{}, errSaid
			}
			entity := strconv.FormatInt(last.Number, 10)
			return audit.Announced(tenant, s.options.Now(), audit.EventCheckpoint, audit.Log, entity, audit.Use, "signed"), nil
		}))
	})
	return errors.Join(append(errs, err)...)
}

// announce appends the entry that compose returns, unless the last one of that name is
// younger than an hour. compose gets the entity of the last one.
func (s *Service) announce(ctx context.Context, tenant, name string, compose func(tx store.Tx, before string) (store.LogEntry, error)) error {
	mark := "event/" + name
	now := s.options.Now()
	write := func(tx store.Tx, put bool) error {
		said, err := tx.Mark(ctx, mark)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		at, entity := readMark(said)
		if since := now.Sub(at); since >= 0 && since < announceEvery {
			return errSaid
		}
		e, err := compose(tx, entity)
		if errors.Is(err, store.ErrNotFound) {
			return errSaid
		}
		if err != nil || !put {
			return err
		}
		if err := tx.PutMark(ctx, mark, fmt.Appendf(nil, "%d %s", now.Unix(), e.EntityID)); err != nil {
			return err
		}
		return tx.AppendLog(ctx, e)
	}
	// Most of the time there is nothing to say, which a view finds out.
	err := s.store.View(ctx, tenant, func(tx store.Tx) error { return write(tx, false) })
	if err == nil {
		err = s.store.Update(ctx, tenant, func(tx store.Tx) error { return write(tx, true) })
	}
	if errors.Is(err, errSaid) || errors.Is(err, store.ErrNoTenant) {
		return nil
	}
	return err
}

var errSaid = errors.New("event: it was announced already")

// readMark reads when something was announced, and of which entity.
func readMark(text []byte) (at time.Time, entity string) {
	var seconds int64
	if n, _ := fmt.Sscan(string(text), &seconds, &entity); n == 0 {
		return time.Time{}, ""
	}
	return time.Unix(seconds, 0), entity
}
