package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

// AddTenants inserts the rows of those tenants that have none, for the tests
// that a backend has of its own: rows without a tenant are not kept.
func AddTenants(ctx context.Context, s store.Store, ids ...string) error {
	for _, id := range ids {
		err := s.View(ctx, id, func(tx store.Tx) error { _, err := tx.TenantRow(ctx); return err })
		if errors.Is(err, store.ErrNotFound) {
			err = s.Update(ctx, id, func(tx store.Tx) error { return tx.InsertTenant(ctx, store.Tenant{ID: id, Name: "test"}) })
		}
		if err != nil && !errors.Is(err, store.ErrExists) { // another was faster
			return fmt.Errorf("add a tenant: %w", err)
		}
	}
	return nil
}
