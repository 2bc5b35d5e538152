package sqlite_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// grouped is a store whose groups of tokens are looked at.
type grouped struct {
	t *testing.T
	*sqlite.Store
}

// add inserts a token into a container of a tenant, and returns its id.
func (g grouped) add(tenant, container string) string {
	g.t.Helper()
	tok := storetest.SomeToken()
	tok.Containers = []string{container}
	g.change(tenant, func(ctx context.Context, tx store.Tx) error { return tx.InsertToken(ctx, tok) })
	return tok.ID
}

func (g grouped) change(tenant string, fn func(context.Context, store.Tx) error) {
	g.t.Helper()
	ctx := g.t.Context()
	if err := g.Update(ctx, tenant, func(tx store.Tx) error { return fn(ctx, tx) }); err != nil {
		g.t.Fatal(err)
	}
}

// look returns how many groups a tenant has, whether one has that container,
// and what it cost to find out.
func (g grouped) look(tenant, container string) (n int, has bool, cost int64) {
	g.t.Helper()
	before := g.ReadCost()
	err := g.View(g.t.Context(), tenant, func(tx store.Tx) error {
		groups, err := tx.TokenGroups(g.t.Context())
		n = len(groups)
		has = slices.ContainsFunc(groups, func(have store.TokenGroup) bool { return slices.Contains(have.Containers, container) })
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return n, has, g.ReadCost() - before
}

func TestGroupsAreReadOnceUntilTheyChange(t *testing.T) {
	const many, few = 300, 8
	g := grouped{t, open(t, t.TempDir(), sqlite.Options{Readers: 2})}
	g.change(tenantA, func(ctx context.Context, tx store.Tx) error {
		for n := range many {
			tok := storetest.SomeToken()
			tok.Containers = []string{fmt.Sprintf("/%d/", n)}
			if err := tx.InsertToken(ctx, tok); err != nil {
				return err
			}
		}
		return nil
	})
	g.add(tenantB, "/b/")
	expect := func(when string, wantGroups int, want bool, cheap bool) {
		t.Helper()
		groups, has, cost := g.look(tenantA, "/new/")
		if groups != wantGroups || has != want || (cost <= few) != cheap {
			t.Errorf("%s: %d groups, with the new one %v, at a cost of %d; want %d, %v, and few statements and rows %v", when, groups, has, cost, wantGroups, want, cheap)
		}
	}
	expect("the first look", many, false, false)
	expect("the second look", many, false, true)
	g.add(tenantA, "/7/")
	expect("after a token in a container that has some", many, false, true)
	g.add(tenantB, "/c/")
	expect("after a new container of another tenant", many, false, true)
	if n, _, _ := g.look(tenantB, ""); n != 2 {
		t.Errorf("the other tenant has %d groups, want its own 2", n)
	}
	id := g.add(tenantA, "/new/")
	expect("after a new container", many+1, true, false)
	expect("and again", many+1, true, true)
	g.change(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, id) })
	expect("after the last token of a container went", many, false, false)
	if err := g.Update(t.Context(), tenantA, func(tx store.Tx) error {
		tok := storetest.SomeToken()
		tok.Containers = []string{"/new/"}
		if err := tx.InsertToken(t.Context(), tok); err != nil {
			return err
		}
		groups, err := tx.TokenGroups(t.Context())
		if err == nil && len(groups) != many+1 {
			t.Errorf("the update that adds a group sees %d, want %d", len(groups), many+1)
		}
		return store.ErrConflict
	}); err == nil {
		t.Fatal("the update was kept")
	}
	if groups, has, _ := g.look(tenantA, "/new/"); groups != many || has {
		t.Errorf("after an update that was taken back: %d groups, with the new one %v; want %d, false", groups, has, many)
	}
	g.change(tenantA, func(ctx context.Context, tx store.Tx) error {
		_, err := tx.DeleteTenantRows(ctx, 100_000)
		return err
	})
	if groups, _, _ := g.look(tenantA, ""); groups != 0 {
		t.Errorf("a tenant that went has %d groups", groups)
	}
}

// Views race with an update that adds and removes groups: what a view sees of
// groups is what it sees of tokens.
func TestGroupsAgreeWithTheSnapshot(t *testing.T) {
	g := grouped{t, open(t, t.TempDir(), sqlite.Options{Readers: 3})}
	ended := make(chan struct{})
	var views sync.WaitGroup
	for range 3 {
		views.Go(func() {
			for {
				if !g.agrees() {
					return
				}
				select {
				case <-ended:
					return
				default:
				}
			}
		})
	}
	for n := range 100 {
		id := g.add(tenantA, fmt.Sprintf("/%d/", n%7))
		if n%3 == 0 {
			g.change(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DeleteToken(ctx, id) })
		}
	}
	close(ended)
	views.Wait()
}

// agrees looks at groups first and at the tokens then, in one view.
func (g grouped) agrees() bool {
	var byGroup, byToken []string
	ctx := g.t.Context()
	err := g.View(ctx, tenantA, func(tx store.Tx) error {
		byGroup, byToken = nil, nil
		groups, err := tx.TokenGroups(ctx)
		if err != nil {
			return err
		}
		for _, group := range groups {
			byGroup = append(byGroup, group.Type+" "+strings.Join(group.Containers, " "))
		}
		rows, err := tx.Tokens(ctx, store.TokenFilter{Groups: store.AllGroups()}, store.Page{Limit: 1000})
		for _, row := range rows {
			byToken = append(byToken, row.Type+" "+strings.Join(row.Containers, " "))
		}
		return err
	})
	slices.Sort(byGroup)
	slices.Sort(byToken)
	byToken = slices.Compact(byToken)
	if err != nil || !slices.Equal(byGroup, byToken) {
		g.t.Errorf("groups %v, tokens in %v, %v", byGroup, byToken, err)
		return false
	}
	return true
}
