package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var tenantTests = []test{
	{"a tenant's row is its own", tenantRow},
	{"tenants are listed in the order of their ids", tenantList},
	{"a tenant is deleted in batches and its log batches stay", tenantDeletion},
	{"a deletion that is cut short is sound and can be finished", tenantDeletionCut},
	{"rows of the same transaction are deleted too", tenantDeletionOwnWrites},
}

func tenantRow(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.InsertTenant(ctx, tenant(tenantA)) })
	f.refused("InsertTenant again", tenantA, store.ErrExists, func(ctx context.Context, tx store.Tx) error {
		return tx.InsertTenant(ctx, tenant(tenantA))
	})
	f.refused("ReplaceTenant of one that is not there", tenantB, store.ErrNotFound, func(ctx context.Context, tx store.Tx) error {
		return tx.ReplaceTenant(ctx, tenant(tenantA))
	})
	changed := tenant(tenantA)
	changed.Name, changed.Settings, changed.Secrets, changed.ModifiedBy, changed.ModifiedAt, changed.Deleting = "New", map[string]string{"a": "b", "c": ""}, nil, "changer", day+hour, true
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.ReplaceTenant(ctx, changed) })
	f.same("tenant", f.contents(tenantA).Tenant, []store.Tenant{changed})
	if c := f.contents(tenantB); len(c.Tenant) != 0 {
		f.Errorf("the other tenant has a row: %+v", c.Tenant)
	}
}

func tenantList(f *fixture) {
	var want []string
	for n := 20; n > 0; n-- {
		id := fmt.Sprintf("%08x-0000-4000-8000-%012x", (n*7919)%251, n)
		f.update(id, func(ctx context.Context, tx store.Tx) error { return tx.InsertTenant(ctx, tenant(id)) })
		want = append(want, id)
	}
	slices.Sort(want)
	for _, size := range []int{1, 3, 19, 20, 21} {
		var got []string
		for after := ""; len(got) < 100; {
			list, err := f.AllTenants().Tenants(f.Context(), after, size)
			if err != nil {
				f.Fatalf("Tenants: %v", err)
			}
			for _, t := range list {
				f.same("tenant", t, tenant(t.ID))
				got, after = append(got, t.ID), t.ID
			}
			if len(list) < size {
				break
			}
		}
		f.same(fmt.Sprintf("tenants, %d at a time", size), got, want)
	}
	if _, err := f.AllTenants().Tenants(f.Context(), "nonsense", 10); err == nil {
		f.Error("Tenants behind nonsense: got no error")
	}
}

func (f *fixture) fillMore(id string) {
	f.Helper()
	f.fill(id)
	f.update(id, func(ctx context.Context, tx store.Tx) error {
		for n := 10; n < 30; n++ {
			if err := errors.Join(tx.InsertToken(ctx, varied(n)), tx.AppendLog(ctx, entry(n)), tx.InsertApplication(ctx, application(n)),
				tx.InsertKey(ctx, key(application(n).ID, n)), tx.PutMark(ctx, fmt.Sprint("mark ", n), []byte("x")), tx.PutKeyset(ctx, keyset(fmt.Sprint("set ", n), 1)),
				tx.InsertSession(ctx, session(n)), tx.InsertParcel(ctx, parcel(store.ParcelAnswer, n)),
				tx.InsertDefinition(ctx, definition(store.DefinitionReactor, n))); err != nil {
				return err
			}
		}
		return nil
	})
}

func tenantDeletion(f *fixture) {
	Long(f.T)
	f.fillMore(tenantA)
	f.fillMore(tenantB)
	other, batches := f.contents(tenantB), f.contents(tenantA).Batches
	for _, limit := range []int{7, 1, 500} {
		steps, rowLast := 0, false
		for more := true; more; steps++ {
			f.update(tenantA, func(ctx context.Context, tx store.Tx) (err error) {
				more, err = tx.DeleteTenantRows(ctx, limit)
				return err
			})
			c := f.contents(tenantA)
			rowLast = len(c.Tenant) == 1
			if gone := !rowLast; gone && (len(c.Keysets)+len(c.Applications)+len(c.Tokens)+len(c.Sessions)+len(c.Parcels)+len(c.Definitions)+len(c.Log)+len(c.Unsealed) > 0 || more) {
				f.Fatalf("limit %d: the tenant's own row went before others", limit)
			}
			if !more && !slices.Equal(c.Groups, nil) {
				f.Errorf("limit %d: groups are left: %q", limit, c.Groups)
			}
			if steps > 1000 {
				f.Fatalf("limit %d: the deletion does not end", limit)
			}
			if steps%20 == 0 {
				f.sound()
			}
		}
		if limit == 7 && steps < 10 {
			f.Errorf("limit %d: the deletion took %d steps, so some removed more than that", limit, steps)
		}
		want := contents{Batches: batches}
		f.same("what is left", f.contents(tenantA), want)
		f.same("the other tenant", f.contents(tenantB), other)
		f.sound()
		f.fillMore(tenantA)
		batches = f.contents(tenantA).Batches
	}
	list, err := f.AllTenants().Tenants(f.Context(), "", 10)
	f.same("tenants listed", len(list), 2)
	if err != nil {
		f.Errorf("Tenants: %v", err)
	}
}

func tenantDeletionCut(f *fixture) {
	f.fillMore(tenantA)
	var more bool
	for range 12 {
		f.update(tenantA, func(ctx context.Context, tx store.Tx) (err error) {
			more, err = tx.DeleteTenantRows(ctx, 11)
			return err
		})
		f.sound()
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			list, err := tx.Tokens(ctx, all, large)
			if err != nil {
				return err
			}
			n, err := tx.CountTokens(ctx, all)
			f.same("tokens counted while some are gone", n, int64(len(list)))
			if err != nil {
				return err
			}
			entries, err := tx.Logs(ctx, store.LogFilter{}, large)
			if err != nil {
				return err
			}
			n, err = tx.CountLogs(ctx, store.LogFilter{})
			f.same("log entries counted while some are gone", n, int64(len(entries)))
			return err
		})
	}
	if !more {
		f.Error("the deletion was over before it could be cut short")
	}
	f.update(tenantA, func(ctx context.Context, tx store.Tx) (err error) {
		more, err = tx.DeleteTenantRows(ctx, 10_000)
		return err
	})
	f.same("rows left", more, false)
	f.sound()
}

func tenantDeletionOwnWrites(f *fixture) {
	f.fill(tenantA)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		if err := errors.Join(tx.InsertToken(ctx, token(2)), tx.AppendLog(ctx, entry(3)), tx.InsertSession(ctx, session(2)),
			tx.InsertParcel(ctx, parcel(store.ParcelRun, 1)), tx.InsertDefinition(ctx, definition(store.DefinitionReactor, 1))); err != nil {
			return err
		}
		_, err := tx.DeleteTenantRows(ctx, 1000)
		return err
	})
	c := f.contents(tenantA)
	f.same("what is left", c, contents{Batches: c.Batches})
	f.sound()
}
