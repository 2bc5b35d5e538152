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
// up to limit rows that are due, but for the first skip of them; remove takes
// some of one tenant's rows, looks again whether each is still there and due,
// and returns how many it removed. A tenant whose rows cannot be removed does
// not keep the others from it, however many they are and however long they have
// been due; one that is being deleted takes its rows along, and is passed by.
// Sweeps may run on many nodes at once: what one misses because of another, the
// next one finds.
func Sweep[R any](ctx context.Context, find func(skip, limit int) ([]R, error), tenantOf func(R) string, remove func(tenant string, rows []R) (int, error)) (removed int, err error) {
	var errs []error
	stuck, skip := make(map[string]bool), 0 // tenants, and how many rows of theirs stand before those that are not yet seen
	for {
		due, err := find(skip, sweepFinds)
		if err != nil {
			return removed, errors.Join(append(errs, err)...)
		}
		byTenant := make(map[string][]R)
		for _, row := range due {
			byTenant[tenantOf(row)] = append(byTenant[tenantOf(row)], row)
		}
		before := removed + skip
		for tenant, rows := range byTenant {
			for len(rows) > 0 && !stuck[tenant] {
				n := min(len(rows), sweepRemoves)
				gone, err := remove(tenant, rows[:n])
				removed += gone
				if err == nil {
					rows = rows[n:]
					continue
				}
				stuck[tenant] = true
				if !errors.Is(err, ErrNoTenant) {
					errs = append(errs, err)
				}
			}
			skip += len(rows)
		}
		if len(due) < sweepFinds || removed+skip == before || ctx.Err() != nil {
			return removed, errors.Join(errs...)
		}
	}
}

// SweepParcels removes parcels whose time is over, of all tenants, and returns
// how many. They are not entities: the log does not name them.
func SweepParcels(ctx context.Context, s Store, now Time) (int, error) {
	return Sweep(ctx, func(skip, limit int) ([]ParcelRef, error) {
		return s.AllTenants().ExpiredParcels(ctx, now, skip, limit)
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
