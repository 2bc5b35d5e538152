package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Bounds on a sweep: how many tokens it looks for at a time, and how many it
// removes in one transaction, behind which others wait.
const (
	sweepFinds   = 1000
	sweepRemoves = 100
)

// Sweep removes tokens that have expired, of all tenants, and returns how many.
// It may run on many nodes at once: each token is removed, and logged, by the
// one that still finds it expired.
func (s *Service) Sweep(ctx context.Context) (removed int, err error) {
	for {
		due, err := s.store.AllTenants().ExpiredTokens(ctx, store.At(s.now()), sweepFinds)
		if err != nil {
			return removed, fmt.Errorf("find expired tokens: %w", err)
		}
		byTenant := make(map[string][]string)
		for _, ref := range due {
			byTenant[ref.Tenant] = append(byTenant[ref.Tenant], ref.ID)
		}
		before := removed
		var errs []error // of one tenant, which must not stop the others
		for tenant, ids := range byTenant {
			for len(ids) > 0 {
				n := min(len(ids), sweepRemoves)
				gone, err := s.sweepTenant(ctx, tenant, ids[:n])
				removed += gone
				if err != nil {
					errs = append(errs, err)
					break
				}
				ids = ids[n:]
			}
		}
		if len(due) < sweepFinds || removed == before || ctx.Err() != nil {
			return removed, errors.Join(errs...)
		}
	}
}

func (s *Service) sweepTenant(ctx context.Context, tenant string, ids []string) (removed int, err error) {
	err = s.store.Update(ctx, tenant, func(tx store.Tx) error {
		removed = 0 // a transaction may run again
		now := s.now()
		var entries []store.LogEntry
		for _, id := range ids {
			row, err := tx.Token(ctx, id)
			if errors.Is(err, store.ErrNotFound) || err == nil && !expired(row, now) {
				continue // another node was first, or it was patched meanwhile
			}
			if err != nil {
				return err
			}
			if err := tx.DeleteToken(ctx, id); err != nil {
				return err
			}
			entries = append(entries, audit.Expired(tenant, now, row.Type, id))
			removed++
		}
		return tx.AppendLog(ctx, entries...)
	})
	if err != nil {
		return 0, fmt.Errorf("remove expired tokens: %w", err)
	}
	s.expired.Add(float64(removed))
	return removed, nil
}
