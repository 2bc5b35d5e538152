package sqlite_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tokenkeep/tokenkeep/internal/store"
	"github.com/tokenkeep/tokenkeep/internal/store/sqlite"
	"github.com/tokenkeep/tokenkeep/internal/store/storetest"
)

// TestATokenThatWasReadIsForgottenWhenItChanges reads a token so that it is kept
// in memory, changes it in every way, and reads it again.
func TestATokenThatWasReadIsForgottenWhenItChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(ctx context.Context, tx store.Tx, tok store.Token) error
		want   error
		data   string
	}{
		"a change": {func(ctx context.Context, tx store.Tx, tok store.Token) error {
			tok.Data, tok.Version = []byte("changed"), tok.Version+1
			return tx.ReplaceToken(ctx, tok)
		}, nil, "changed"},
		"a deletion": {func(ctx context.Context, tx store.Tx, tok store.Token) error {
			return tx.DeleteToken(ctx, tok.ID)
		}, store.ErrNotFound, ""},
		"a deletion and a token of the same id": {func(ctx context.Context, tx store.Tx, tok store.Token) error {
			if err := tx.DeleteToken(ctx, tok.ID); err != nil {
				return err
			}
			tok.Data = []byte("another")
			return tx.InsertToken(ctx, tok)
		}, nil, "another"},
		"the deletion of the tenant": {func(ctx context.Context, tx store.Tx, _ store.Token) error {
			_, err := tx.DeleteTenantRows(ctx, 1000)
			return err
		}, store.ErrNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir(), sqlite.Options{})
			ctx, tok := t.Context(), storetest.SomeToken()
			update := func(fn func(tx store.Tx) error) {
				t.Helper()
				if err := s.Update(ctx, tenantA, fn); err != nil {
					t.Fatal(err)
				}
			}
			read := func() (got store.Token, err error) {
				err = s.View(ctx, tenantA, func(tx store.Tx) (err error) { got, err = tx.Token(ctx, tok.ID); return err })
				return got, err
			}
			update(func(tx store.Tx) error { return tx.InsertToken(ctx, tok) })
			if _, err := read(); err != nil {
				t.Fatal(err)
			}
			if n := s.Recent(); n != 1 {
				t.Fatalf("%d tokens are kept in memory, want 1", n)
			}
			errUndo := errors.New("undo")
			if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return errors.Join(c.change(ctx, tx, tok), errUndo) }); !errors.Is(err, errUndo) {
				t.Fatal(err)
			}
			if got, err := read(); err != nil || string(got.Data) != string(tok.Data) {
				t.Errorf("after a change that was taken back: %v", err)
			}
			update(func(tx store.Tx) error { return c.change(ctx, tx, tok) })
			if n := s.Recent(); n != 0 {
				t.Errorf("%d tokens are kept in memory after the change, want none", n)
			}
			for range 2 {
				if got, err := read(); !errors.Is(err, c.want) || err == nil && string(got.Data) != c.data {
					t.Errorf("after the change: got error %v, want %v, or other data", err, c.want)
				}
			}
		})
	}
}

// TestATokenOfAnotherTenantIsNotRecalled: ids are those of their tenant.
func TestATokenOfAnotherTenantIsNotRecalled(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	ctx, tok := t.Context(), storetest.SomeToken()
	if err := s.Update(ctx, tenantA, func(tx store.Tx) error { return tx.InsertToken(ctx, tok) }); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tenant string
		want   error
	}{{tenantA, nil}, {tenantB, store.ErrNotFound}, {tenantA, nil}} {
		err := s.View(ctx, c.tenant, func(tx store.Tx) error { _, err := tx.Token(ctx, tok.ID); return err })
		if !errors.Is(err, c.want) {
			t.Errorf("Token: got error %v, want %v", err, c.want)
		}
	}
}

func TestTokensInMemoryAreBounded(t *testing.T) {
	s := open(t, t.TempDir(), sqlite.Options{})
	ctx := t.Context()
	const tokens, size = 400, 20_000 // more than there may be
	for range tokens / 100 {
		var ids []string
		if err := s.Update(ctx, tenantA, func(tx store.Tx) error {
			ids = nil
			for range 100 {
				tok := storetest.SomeToken()
				tok.Data = make([]byte, size)
				ids = append(ids, tok.ID)
				if err := tx.InsertToken(ctx, tok); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if err := s.View(ctx, tenantA, func(tx store.Tx) error { _, err := tx.Token(ctx, id); return err }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := s.Recent(); n == 0 || n*size > sqlite.RecentBytes {
		t.Errorf("%d tokens of %d bytes are kept, want some, and no more than %d bytes", n, size, sqlite.RecentBytes)
	}
}
