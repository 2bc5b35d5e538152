package store

import (
	"context"
	"errors"
	"slices"
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
// and returns how many it removed. Tenants take turns, with a batch each: one
// that has much to remove does not keep the others waiting. A tenant whose rows cannot be removed does
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
		var tenants []string // in the order in which their first rows were due
		for _, row := range due {
			tenant := tenantOf(row)
			if byTenant[tenant] == nil {
				tenants = append(tenants, tenant)
			}
			byTenant[tenant] = append(byTenant[tenant], row)
		}
		before := removed + skip
		for len(tenants) > 0 { // a batch of each
			tenants = slices.DeleteFunc(tenants, func(tenant string) bool {
				rows := byTenant[tenant]
				if !stuck[tenant] {
					n := min(len(rows), sweepRemoves)
					gone, err := remove(tenant, rows[:n])
					removed += gone
					if err == nil {
						byTenant[tenant] = rows[n:]
						return n == len(rows)
					}
					stuck[tenant] = true
					if !errors.Is(err, ErrNoTenant) {
						errs = append(errs, err)
					}
				}
				skip += len(rows)
				return true
			})
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
