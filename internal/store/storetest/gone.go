package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var goneTests = []test{
	{"nothing is kept for a tenant that is not there", writesForNobody},
	{"while a tenant is being deleted nothing is kept but what the deletion needs", writesWhileDeleting},
	{"whoever inserts or marks the tenant writes for it", writesWithTheTenant},
	{"what follows the last row of a tenant in its transaction is not kept", writesBehindTheLastRow},
	{"a write that a deletion needs spares no other", sparedAlone},
	{"inserts that meet a deletion leave nothing", insertsMeetDeletion},
	{"nobody is found by a key of a tenant that is being deleted", keysWhileDeleting},
}

// spared are the writes that a deletion needs.
var spared = map[string]bool{"DestroyKeysets": true, "DeleteTenantRows": true, "AppendLogBatch": true, "PutKeyset": true}

func (f *fixture) remove(id string) {
	f.Helper()
	for more := true; more; {
		f.update(id, func(ctx context.Context, tx store.Tx) (err error) {
			more, err = tx.DeleteTenantRows(ctx, 1000)
			return err
		})
	}
}

// mark begins the deletion of a tenant.
func mark(ctx context.Context, tx store.Tx) error {
	row, err := tx.TenantRow(ctx)
	if err != nil {
		return err
	}
	row.Deleting = true
	return tx.ReplaceTenant(ctx, row)
}

func writesForNobody(f *fixture) {
	for _, m := range methods {
		want := m.absent
		if want == nil && !spared[m.name] && m.name != "InsertTenant" {
			want = store.ErrNoTenant
		}
		if !m.writes {
			continue
		}
		err := f.Update(f.Context(), tenantA, func(tx store.Tx) error {
			_, err := m.call(f.Context(), tx)
			return err
		})
		// A write that waits for the commit may find the tenant missing before
		// it finds its row missing.
		if !errors.Is(err, want) && (m.absent == nil || !errors.Is(err, store.ErrNoTenant)) {
			f.Errorf("%s for a tenant that is not there: got error %v, want %v", m.name, err, want)
		}
		if m.name == "InsertTenant" {
			f.remove(tenantA)
		}
		f.same("contents after "+m.name, f.contents(tenantA), contents{})
	}
	f.sound()
}

func writesWhileDeleting(f *fixture) {
	for _, m := range methods {
		if !m.writes {
			continue
		}
		f.fill(tenantA)
		f.update(tenantA, mark)
		before, want := f.contents(tenantA), store.ErrNoTenant
		switch {
		case spared[m.name]:
			want = nil
		case m.name == "InsertTenant":
			want = store.ErrExists
		case m.name == "ReplaceTenant":
			want = store.ErrNotFound
		}
		f.refused(m.name+" while the tenant is being deleted", tenantA, want, func(ctx context.Context, tx store.Tx) error {
			_, err := m.call(ctx, tx)
			return err
		})
		if want != nil {
			f.same("contents after "+m.name, f.contents(tenantA), before)
		}
		f.remove(tenantA)
	}
	f.sound()
}

func writesWithTheTenant(f *fixture) {
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.PutKeyset(ctx, keyset("data", 1)), tx.InsertToken(ctx, token(1)), tx.InsertTenant(ctx, tenant(tenantA)), tx.AppendLog(ctx, entry(1)))
	})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error {
		return errors.Join(tx.AppendLog(ctx, entry(2)), mark(ctx, tx), tx.AppendLog(ctx, entry(3)))
	})
	c := f.contents(tenantA)
	if len(c.Tenant) != 1 || !c.Tenant[0].Deleting || len(c.Keysets) != 1 || len(c.Tokens) != 1 || len(c.Log) != 3 {
		f.Errorf("contents: got %+v, want all that was written", c)
	}
	f.sound()
}

func writesBehindTheLastRow(f *fixture) {
	f.people(tenantA)
	f.refused("AppendLog behind the last row", tenantA, store.ErrNoTenant, func(ctx context.Context, tx store.Tx) error {
		if _, err := tx.DeleteTenantRows(ctx, 1000); err != nil {
			return err
		}
		return tx.AppendLog(ctx, entry(1))
	})
	f.refused("the same behind a mark", tenantA, store.ErrNoTenant, func(ctx context.Context, tx store.Tx) error {
		if err := mark(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.DeleteTenantRows(ctx, 1000); err != nil {
			return err
		}
		return tx.AppendLog(ctx, entry(1))
	})
	f.same("contents", f.contents(tenantA), contents{Tenant: []store.Tenant{tenant(tenantA)}})
}

func sparedAlone(f *fixture) {
	f.fill(tenantA)
	f.update(tenantA, mark)
	want := f.contents(tenantA)
	for _, m := range methods {
		if !spared[m.name] || m.name == "DeleteTenantRows" { // that one takes along what was written before it
			continue
		}
		call := func(ctx context.Context, tx store.Tx) error { _, err := m.call(ctx, tx); return err }
		f.refused("AppendLog and "+m.name, tenantA, store.ErrNoTenant, func(ctx context.Context, tx store.Tx) error {
			return errors.Join(tx.AppendLog(ctx, entry(3)), call(ctx, tx))
		})
		f.refused(m.name+" and AppendLog", tenantA, store.ErrNoTenant, func(ctx context.Context, tx store.Tx) error {
			return errors.Join(call(ctx, tx), tx.AppendLog(ctx, entry(3)))
		})
		f.same("contents after "+m.name, f.contents(tenantA), want)
	}
	f.sound()
}

func insertsMeetDeletion(f *fixture) {
	const writers = 8
	f.people(tenantA)
	warm := make(chan struct{}, writers)
	var running sync.WaitGroup
	for i := range writers {
		running.Go(func() {
			for n := range 5000 {
				id := i*10_000 + n
				err := f.Update(f.Context(), tenantA, func(tx store.Tx) error {
					if i%2 == 0 { // some read first
						if _, err := tx.Mark(f.Context(), markName); err != nil && !errors.Is(err, store.ErrNotFound) {
							return err
						}
					}
					return errors.Join(tx.InsertToken(f.Context(), token(id)), tx.AppendLog(f.Context(), entry(id)))
				})
				if n == 0 {
					warm <- struct{}{}
				}
				if errors.Is(err, store.ErrNoTenant) {
					return
				}
				if err != nil {
					f.Errorf("Update while the tenant goes: got error %v, want none or %v", err, store.ErrNoTenant)
					return
				}
			}
			f.Error("the deletion never came")
		})
	}
	for range writers {
		<-warm
	}
	f.update(tenantA, mark)
	f.remove(tenantA)
	running.Wait()
	f.same("what is left", f.contents(tenantA), contents{})
	f.sound()
}

// keysWhileDeleting: what finds callers finds none, and the rows are there.
func keysWhileDeleting(f *fixture) {
	f.fill(tenantA)
	f.fill(tenantB)
	finds := []string{"KeyByHash", "SessionByKey", "DefinitionByKey"}
	found := func(tenant string) (n int) {
		for _, m := range methods {
			if !slices.Contains(finds, m.name) {
				continue
			}
			f.view(tenant, func(ctx context.Context, tx store.Tx) error {
				switch _, err := m.call(ctx, tx); {
				case err == nil:
					n++
				case !errors.Is(err, store.ErrNotFound):
					f.Errorf("%s: got error %v, want %v", m.name, err, store.ErrNotFound)
				}
				return nil
			})
		}
		return n
	}
	f.same("found before", found(tenantA), len(finds))
	before := f.contents(tenantA)
	f.update(tenantA, mark)
	f.same("found while it is being deleted", found(tenantA), 0)
	f.same("found in the other tenant", found(tenantB), len(finds))
	after := f.contents(tenantA)
	f.same("applications and keys", []any{after.Applications, after.Keys}, []any{before.Applications, before.Keys})
}
