package event

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

const (
	dispatchEvents = 500 // that one transaction hands on
	dispatchTurns  = 4   // transactions of one tenant before the others get their turn
	maxStale       = 20  // changes of the receivers that one call waits for
	tenantsAtOnce  = 200
	dropAtOnce     = 1000
)

// Dispatch hands on what was appended since, of all tenants. A tenant with many
// events does not keep the others waiting: what is left is for the next call.
func (s *Service) Dispatch(ctx context.Context) error {
	var errs []error
	for after := ""; ctx.Err() == nil; {
		tenants, err := s.store.AllTenants().EventTenants(ctx, after, tenantsAtOnce)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("find tenants with events: %w", err))...)
		}
		for _, tenant := range tenants {
			errs = append(errs, s.dispatchTenant(ctx, tenant))
			after = tenant
		}
		if len(tenants) < tenantsAtOnce {
			break
		}
	}
	return errors.Join(errs...)
}

func (s *Service) dispatchTenant(ctx context.Context, tenant string) error {
	for stale, turn := 0, 0; turn < dispatchTurns; {
		var to Receivers
		if s.options.Receivers != nil {
			var err error
			if to, err = s.options.Receivers(ctx, tenant); err != nil {
				return fmt.Errorf("find the receivers of events: %w", err)
			}
		}
		handed := 0
		err := s.store.Update(ctx, tenant, func(tx store.Tx) (err error) {
			handed, err = hand(ctx, tx, to)
			return err
		})
		switch {
		case errors.Is(err, ErrStale) && stale < maxStale:
			stale++
			continue
		case errors.Is(err, store.ErrNoTenant):
			return nil // its events go with it
		case err != nil:
			return fmt.Errorf("dispatch events: %w", err)
		}
		if handed > 0 && to != nil {
			to.Handed()
		}
		if handed < dispatchEvents {
			return nil
		}
		turn++
	}
	return nil
}

// hand hands on the next events of a tenant and returns how many.
func hand(ctx context.Context, tx store.Tx, to Receivers) (int, error) {
	if _, err := tx.NumberEvents(ctx, dispatchEvents); err != nil {
		return 0, fmt.Errorf("number events: %w", err)
	}
	head, err := tx.EventHead(ctx)
	if err != nil || head.Dispatched >= head.Last {
		return 0, err
	}
	list, err := tx.Events(ctx, store.EventFilter{}, head.Dispatched, dispatchEvents)
	if err != nil {
		return 0, err
	}
	through := head.Last
	if len(list) > 0 {
		through = list[len(list)-1].Number
	}
	if to != nil && len(list) > 0 {
		if err := to.Hand(ctx, tx, list); err != nil {
			return 0, err
		}
	}
	return len(list), tx.PutDispatched(ctx, through)
}

// Sweep removes events that are older than Keep, of all tenants, and returns how
// many.
func (s *Service) Sweep(ctx context.Context) (removed int, err error) {
	var errs []error
	err = s.eachTenant(ctx, func(tenant string) {
		n, err := s.sweepTenant(ctx, tenant)
		removed += n
		errs = append(errs, err)
	})
	return removed, errors.Join(append(errs, err)...)
}

func (s *Service) eachTenant(ctx context.Context, do func(tenant string)) error {
	for after := ""; ctx.Err() == nil; {
		tenants, err := s.store.AllTenants().Tenants(ctx, after, tenantsAtOnce)
		if err != nil {
			return fmt.Errorf("list tenants: %w", err)
		}
		for _, t := range tenants {
			if after = t.ID; !t.Deleting {
				do(t.ID)
			}
		}
		if len(tenants) < tenantsAtOnce {
			return nil
		}
	}
	return ctx.Err()
}

func (s *Service) sweepTenant(ctx context.Context, tenant string) (removed int, err error) {
	old := store.At(s.options.Now().Add(-Keep))
	for ctx.Err() == nil {
		var oldest []store.Event
		err := s.store.View(ctx, tenant, func(tx store.Tx) (err error) {
			oldest, err = tx.Events(ctx, store.EventFilter{}, 0, 1)
			return err
		})
		if err != nil || len(oldest) == 0 || oldest[0].CreatedAt >= old {
			return removed, err
		}
		n := 0
		err = s.store.Update(ctx, tenant, func(tx store.Tx) (err error) {
			n, err = tx.DropEvents(ctx, old, dropAtOnce)
			return err
		})
		if removed += n; err != nil || n == 0 {
			if errors.Is(err, store.ErrNoTenant) {
				err = nil
			}
			return removed, err
		}
	}
	return removed, ctx.Err()
}
