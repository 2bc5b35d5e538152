package token

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/audit"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

// Sweep removes tokens that have expired, of all tenants, and returns how many.
// Each is removed, and logged, by the node that still finds it expired.
func (s *Service) Sweep(ctx context.Context) (removed int, err error) {
	return store.Sweep(ctx, func(skip, limit int) ([]store.TokenRef, error) {
		return s.store.AllTenants().ExpiredTokens(ctx, store.At(s.now()), skip, limit)
	}, func(r store.TokenRef) string { return r.Tenant }, func(tenant string, due []store.TokenRef) (int, error) {
		return s.sweepTenant(ctx, tenant, due)
	})
}

func (s *Service) sweepTenant(ctx context.Context, tenant string, due []store.TokenRef) (removed int, err error) {
	err = s.store.Update(ctx, tenant, func(tx store.Tx) error {
		removed = 0 // a transaction may run again
		now := s.now()
		var entries []store.LogEntry
		for _, ref := range due {
			row, err := tx.Token(ctx, ref.ID)
			if errors.Is(err, store.ErrNotFound) || err == nil && !expired(row, now) {
				continue // another node was first, or it was patched meanwhile
			}
			if err != nil {
				return err
			}
			if err := tx.DeleteToken(ctx, row.ID); err != nil {
				return err
			}
			entries = append(entries, audit.Expired(tenant, now, row.Type, row.ID).In(row.Containers))
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
