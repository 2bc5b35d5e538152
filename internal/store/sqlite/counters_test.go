package sqlite_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// TestTotalsCostTheSameHoweverManyContainersThereAre looks at the statements
// that count: they read the counters of types, of which there is one for each
// type, and no groups.
func TestTotalsCostTheSameHoweverManyContainersThereAre(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s := open(t, dir, sqlite.Options{})
	const many = 300
	if err := s.Update(ctx, tenantB, func(tx store.Tx) error {
		for n := range many {
			tok := storetest.SomeToken()
			tok.Containers = []string{fmt.Sprintf("/%d/", n)}
			if err := tx.InsertToken(ctx, tok); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openBare(t, dir, sqlite.Options{Readers: 1})
	if err := s.View(ctx, tenantB, func(tx store.Tx) error {
		types, err := tx.CountTypes(ctx, 1)
		if err != nil || len(types) != 1 {
			t.Errorf("types are %v, error %v; want one", types, err)
		}
		n, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups()})
		if n != many {
			t.Errorf("%d tokens are counted, want %d", n, many)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	plans, err := s.Plans()
	if err != nil {
		t.Fatal(err)
	}
	counters := 0
	for text, plan := range plans {
		all := strings.Join(plan, "; ")
		if strings.Contains(all, "token_types") {
			counters++
		}
		if strings.Contains(all, "token_groups") || strings.Contains(all, "tokens_by_") {
			t.Errorf("%s\n\tis run with: %s", text, all)
		}
	}
	if counters != 2 {
		t.Errorf("%d statements read the counters of types, want 2", counters)
	}
}

// TestCountersOfAnOlderStoreAreFilled begins with groups of the release before,
// of which one has lost its last token.
func TestCountersOfAnOlderStoreAreFilled(t *testing.T) {
	texts, err := sqlite.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	ctx, dir := t.Context(), t.TempDir()
	tenant := "x'" + strings.ReplaceAll(tenantA, "-", "") + "'"
	statements := append(slices.Clone(texts[:5]), "INSERT INTO tenants VALUES ("+tenant+", '', '{}', NULL, '', 0, '', 0, 0)")
	for i, c := range []struct {
		kind       string
		containers []string
		tokens     int
	}{{"card", []string{"/a/"}, 2}, {"card", []string{"/a/", "/b/"}, 1}, {"bank", []string{"/b/"}, 1}, {"bank", []string{"/gone/"}, 0}} {
		group, containers := store.GroupOf(c.kind, c.containers)
		statements = append(statements, fmt.Sprintf("INSERT INTO token_groups VALUES (%s, x'%s', '%s', '%s', %d)", tenant, group, c.kind, containers, c.tokens))
		for n := range c.tokens {
			statements = append(statements, fmt.Sprintf(`INSERT INTO tokens (tenant_id, id, group_id, type, containers, data, expires_offset, created_by, created_at, modified_by, modified_at, version)
				VALUES (%s, 't%d-%d', x'%s', '%s', '%s', x'01', 0, '', 1, '', 1, 1)`, tenant, i, n, group, c.kind, containers))
		}
	}
	plain(t, dir, append(statements, "PRAGMA user_version = 5", "PRAGMA application_id = 0x544b4550")...)
	s := openBare(t, dir, sqlite.Options{MaxContainers: 3})
	insert := func(container string) error {
		return s.Update(ctx, tenantA, func(tx store.Tx) error {
			tok := storetest.SomeToken()
			tok.Containers = []string{container}
			return tx.InsertToken(ctx, tok)
		})
	}
	if err := insert("/c/"); err != nil {
		t.Errorf("a third container: %v", err)
	}
	if err := insert("/d/"); err == nil {
		t.Error("a fourth container was taken")
	}
	if err := s.View(ctx, tenantA, func(tx store.Tx) error {
		types, err := tx.CountTypes(ctx, 1)
		if got := fmt.Sprint(types); got != "map[bank:1 card:4]" {
			t.Errorf("types are %s", got)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Check(ctx, nil); len(found) > 0 || err != nil {
		t.Errorf("Check: got %q, error %v; want nothing", found, err)
	}
}
