package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres"
	"github.com/tokenkeep/tokenkeep/internal/store/postgres/pgtest"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// An update that has begun sees its tenant to the end, whatever happens to it
// meanwhile: that it is not kept rests on the isolation of transactions.
func TestAnUpdateThatBeganBeforeADeletionIsNotKeptBehindIt(t *testing.T) {
	url := pgtest.Database(t)
	s, other := open(t, url, postgres.Options{}), open(t, url, postgres.Options{})
	for _, limit := range []int{1, 1000} { // rows that a step of the deletion removes
		tenant := uuid.NewString()
		update := func(s store.Store, fn func(context.Context, store.Tx) error) error {
			return s.Update(t.Context(), tenant, func(tx store.Tx) error { return fn(t.Context(), tx) })
		}
		if err := update(s, func(ctx context.Context, tx store.Tx) error {
			return errors.Join(tx.InsertTenant(ctx, store.Tenant{Name: "test"}), tx.PutMark(ctx, "mark", []byte("x")))
		}); err != nil {
			t.Fatal(err)
		}
		runs := 0
		err := update(s, func(ctx context.Context, tx store.Tx) error {
			runs++
			row, err := tx.TenantRow(ctx)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			if runs == 1 {
				if err := update(other, func(ctx context.Context, tx store.Tx) error {
					row.Deleting = true
					return tx.ReplaceTenant(ctx, row)
				}); err != nil {
					return err
				}
				for more := true; more; {
					if err := update(other, func(ctx context.Context, tx store.Tx) (err error) {
						more, err = tx.DeleteTenantRows(ctx, limit)
						return err
					}); err != nil {
						return err
					}
				}
				if again, err := tx.TenantRow(ctx); err != nil || again.Deleting {
					t.Errorf("TenantRow in the same transaction = %+v, %v; want what it saw at first", again, err)
				}
			}
			return errors.Join(tx.InsertToken(ctx, storetest.SomeToken()), tx.AppendLog(ctx, storetest.SomeEntry("x")))
		})
		if !errors.Is(err, store.ErrNoTenant) || runs != 2 {
			t.Errorf("limit %d: Update = %v in %d runs, want %v in the second", limit, err, runs, store.ErrNoTenant)
		}
		if err := s.View(t.Context(), tenant, func(tx store.Tx) error {
			tokens, err := tx.CountTokens(t.Context(), store.TokenFilter{Now: 1, Groups: store.AllGroups()})
			entries, logErr := tx.CountLogs(t.Context(), store.LogFilter{})
			if tokens+entries != 0 {
				t.Errorf("limit %d: %d tokens and %d entries are left", limit, tokens, entries)
			}
			return errors.Join(err, logErr)
		}); err != nil {
			t.Error(err)
		}
	}
}
