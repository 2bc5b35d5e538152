package sqlite_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// waiting appends n entries to a tenant's log and returns their positions.
func waiting(t *testing.T, s store.Store, tenant string, n int) (list []store.Position) {
	t.Helper()
	if err := storetest.AddTenants(t.Context(), s, tenant); err != nil {
		t.Fatal(err)
	}
	err := s.Update(t.Context(), tenant, func(tx store.Tx) error {
		list = nil
		for i := range n {
			p := store.Position{CreatedAt: store.Time(1000 + i/2), ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i)}
			list = append(list, p)
			if err := tx.AppendLog(t.Context(), store.LogEntry{ID: p.ID, CreatedAt: p.CreatedAt, EntityType: "token"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestTenantsWithUnsealedEntriesAreFoundPageByPage(t *testing.T) {
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var tenants []string
	for range 7 {
		tenants = append(tenants, uuid.NewString())
	}
	slices.Sort(tenants)
	for _, tenant := range tenants {
		waiting(t, s, tenant, 3)
	}
	// The third tenant's entries are sealed, so it has nothing that waits.
	if err := s.Update(t.Context(), tenants[2], func(tx store.Tx) error {
		positions, err := tx.UnsealedLogPositions(t.Context(), nil, 10)
		return errors.Join(err, tx.AppendLogBatch(t.Context(), store.LogBatch{
			Number: 1, Count: 3, Leaves: []byte{1}, Root: []byte{1}, Link: []byte{1}, Signature: []byte{1}, SealedAt: 1,
		}, positions))
	}); err != nil {
		t.Fatal(err)
	}
	want := slices.Delete(slices.Clone(tenants), 2, 3)

	var got []string
	for after, pages := "", 0; pages < 10; pages++ {
		page, err := s.AllTenants().UnsealedTenants(t.Context(), after, 4)
		if err != nil {
			t.Fatalf("UnsealedTenants(%q, 4) = %v", after, err)
		}
		if len(page) == 0 {
			break
		}
		if len(page) > 4 {
			t.Fatalf("UnsealedTenants(%q, 4) returned %d tenants", after, len(page))
		}
		got, after = append(got, page...), page[len(page)-1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("UnsealedTenants page by page = %v, want %v", got, want)
	}
	if _, err := s.AllTenants().UnsealedTenants(t.Context(), "no tenant", 1); !errors.Is(err, store.ErrNoTenant) {
		t.Errorf("UnsealedTenants behind what is no id = %v, want %v", err, store.ErrNoTenant)
	}
}

func TestUnsealedPositionsArePagedAndOfOneTenant(t *testing.T) {
	s, err := sqlite.Open(t.Context(), t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	tenant, other := uuid.NewString(), uuid.NewString()
	want := waiting(t, s, tenant, 9)
	waiting(t, s, other, 4)

	var got []store.Position
	var after *store.Position
	for range 10 {
		var page []store.Position
		if err := s.View(t.Context(), tenant, func(tx store.Tx) (err error) {
			page, err = tx.UnsealedLogPositions(t.Context(), after, 4)
			return err
		}); err != nil {
			t.Fatalf("UnsealedLogPositions = %v", err)
		}
		if len(page) == 0 {
			break
		}
		got, after = append(got, page...), &page[len(page)-1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("UnsealedLogPositions page by page = %v, want %v", got, want)
	}
}
