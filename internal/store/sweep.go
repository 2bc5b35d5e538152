package store

import (
	"context"
	"errors"
)

// Bounds on a sweep: how much it looks for at a time, and how much it removes
// in one transaction, behind which others wait.
const (
	sweepFinds   = 1000
	sweepRemoves = 100
)

// Sweep removes what is due, of all tenants, and returns how much. find returns
// up to limit rows that are due; remove takes some of one tenant's rows, looks
// again whether each is still there and due, and returns how many it removed. A
// tenant whose rows cannot be removed does not keep the others from it. Sweeps
// may run on many nodes at once.
func Sweep[R any](ctx context.Context, find func(limit int) ([]R, error), tenantOf func(R) string, remove func(tenant string, rows []R) (int, error)) (removed int, err error) {
	for {
		due, err := find(sweepFinds)
		if err != nil {
			return removed, err
		}
		byTenant := make(map[string][]R)
		for _, row := range due {
			byTenant[tenantOf(row)] = append(byTenant[tenantOf(row)], row)
		}
		before := removed
		var errs []error
		for tenant, rows := range byTenant {
			for len(rows) > 0 {
				n := min(len(rows), sweepRemoves)
				gone, err := remove(tenant, rows[:n])
				removed += gone
				if err != nil {
					errs = append(errs, err)
					break
				}
				rows = rows[n:]
			}
		}
		if len(due) < sweepFinds || removed == before || ctx.Err() != nil {
			return removed, errors.Join(errs...)
		}
	}
}

// SweepParcels removes parcels whose time is over, of all tenants, and returns
// how many. They are not entities: the log does not name them.
func SweepParcels(ctx context.Context, s Store, now Time) (int, error) {
	return Sweep(ctx, func(limit int) ([]ParcelRef, error) {
		return s.AllTenants().ExpiredParcels(ctx, now, limit)
	}, func(r ParcelRef) string { return r.Tenant }, func(tenant string, due []ParcelRef) (removed int, err error) {
		err = s.Update(ctx, tenant, func(tx Tx) error {
			removed = 0 // a transaction may run again
			for _, ref := range due {
				p, err := tx.Parcel(ctx, ref.Kind, ref.ID)
				if errors.Is(err, ErrNotFound) || err == nil && p.ExpiresAt > now {
					continue // another node was first, or it was prolonged
				}
				if err != nil {
					return err
				}
				if err := tx.DeleteParcel(ctx, ref.Kind, ref.ID); err != nil {
					return err
				}
				removed++
			}
			return nil
		})
		return removed, err
	})
}
