package store_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

type dueRow struct {
	tenant string
	number int
}

// TestASweepPassesByWhatCannotBeRemoved: rows of a tenant that cannot be removed
// have been due for longest, and are more than a sweep looks for at a time.
func TestASweepPassesByWhatCannotBeRemoved(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fails map[string]error // of tenants
		want  error
	}{
		"all can be removed":       {nil, nil},
		"one fails":                {map[string]error{"first": broken}, broken},
		"one is being deleted":     {map[string]error{"first": fmt.Errorf("remove: %w", store.ErrNoTenant)}, nil},
		"two, for reasons of both": {map[string]error{"first": broken, "second": store.ErrNoTenant}, broken},
		"none can be removed":      {map[string]error{"first": broken, "second": broken, "third": broken}, broken},
	} {
		var rows []dueRow // in the order in which they are due
		for n := range 2500 {
			rows = append(rows, dueRow{"first", n})
		}
		for n := range 1500 {
			rows = append(rows, dueRow{"second", n}, dueRow{"third", n})
		}
		left, tries, finds := len(rows), map[string]int{}, 0
		for tenant := range c.fails {
			left -= map[string]int{"first": 2500, "second": 1500, "third": 1500}[tenant]
		}
		removed, err := store.Sweep(t.Context(), func(skip, limit int) ([]dueRow, error) {
			if finds++; finds > 20 {
				return nil, errors.New("it does not end")
			}
			return slices.Clone(rows[min(skip, len(rows)):min(skip+limit, len(rows))]), nil
		}, func(r dueRow) string { return r.tenant }, func(tenant string, some []dueRow) (int, error) {
			tries[tenant]++
			if err := c.fails[tenant]; err != nil {
				return 0, err
			}
			rows = slices.DeleteFunc(rows, func(r dueRow) bool { return slices.Contains(some, r) })
			return len(some), nil
		})
		if removed != left || !errors.Is(err, c.want) {
			t.Errorf("%s: Sweep = %d, %v; want %d, %v", name, removed, err, left, c.want)
		}
		for tenant := range c.fails {
			if tries[tenant] != 1 {
				t.Errorf("%s: the %s tenant was tried %d times, want once", name, tenant, tries[tenant])
			}
		}
	}
}

// TestASweepEndsWhereAnotherNodeIsAtIt, although it finds the same rows again.
func TestASweepEndsWhereAnotherNodeIsAtIt(t *testing.T) {
	finds := 0
	removed, err := store.Sweep(t.Context(), func(_, limit int) ([]dueRow, error) {
		finds++
		return make([]dueRow, limit), nil
	}, func(dueRow) string { return "" }, func(string, []dueRow) (int, error) { return 0, nil })
	if removed != 0 || err != nil || finds != 1 {
		t.Errorf("Sweep = %d, %v after %d looks; want none, after one", removed, err, finds)
	}
}

// TestASweepServesTenantsInTurn: what one tenant has to remove was due before
// what another has.
func TestASweepServesTenantsInTurn(t *testing.T) {
	var rows []dueRow
	for n := range 900 {
		rows = append(rows, dueRow{"first", n})
	}
	for n := range 90 {
		rows = append(rows, dueRow{"second", n})
	}
	var order []string
	removed, err := store.Sweep(t.Context(), func(int, int) ([]dueRow, error) { return slices.Clone(rows), nil },
		func(r dueRow) string { return r.tenant }, func(tenant string, some []dueRow) (int, error) {
			if order = append(order, tenant); len(some) > 100 {
				t.Errorf("%d rows in one transaction, want 100 at most", len(some))
			}
			return len(some), nil
		})
	if removed != 990 || err != nil || slices.Index(order, "second") != 1 {
		t.Errorf("Sweep = %d, %v in the order %v; want 990, and the second tenant after one batch of the first", removed, err, order)
	}
}
