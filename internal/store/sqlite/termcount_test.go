package sqlite_test

import (
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

func TestOnlyTermsThatManyTokensHaveAreKeptCounted(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	ctx := t.Context()
	common := []byte("a term that all have")
	insert := func(n int) {
		t.Helper()
		if err := s.Update(ctx, tenantA, func(tx store.Tx) error {
			for range n {
				tok := storetest.SomeToken() // with terms of its own
				tok.Terms = append(tok.Terms, common)
				if err := tx.InsertToken(ctx, tok); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(tokens, counted int64) {
		t.Helper()
		if n, err := s.CountedTerms(ctx); n != counted || err != nil {
			t.Errorf("of %d tokens %d terms are kept counted, error %v; want %d", tokens, n, err, counted)
		}
		if err := s.View(ctx, tenantA, func(tx store.Tx) error {
			n, err := tx.CountTokens(ctx, store.TokenFilter{Now: 1, Groups: store.AllGroups(), Terms: [][]byte{common}})
			if n != tokens {
				t.Errorf("CountTokens: got %d, want %d", n, tokens)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	insert(999)
	check(999, 0)
	insert(1000) // some of them ask
	check(1999, 1)
	insert(1)
	check(2000, 1)
	if found, err := s.Check(ctx, nil); err != nil || len(found) > 0 {
		t.Errorf("Check: %q, error %v", found, err)
	}
}
