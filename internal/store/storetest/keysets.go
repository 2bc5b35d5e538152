package storetest

import (
	"context"
	"errors"
	"fmt"

	"github.com/tokenkeep/tokenkeep/internal/store"
)

var keysetTests = []test{
	{"a keyset needs the next version", keysetVersions},
	{"destroyed keysets are gone and may come anew", keysetDestruction},
	{"marks are kept, changed and removed", marks},
}

func keysetVersions(f *fixture) {
	put := func(k store.Keyset) func(ctx context.Context, tx store.Tx) error {
		return func(ctx context.Context, tx store.Tx) error { return tx.PutKeyset(ctx, k) }
	}
	for _, version := range []int64{-1, 0, 2} {
		f.refused(fmt.Sprintf("PutKeyset with version %d over none", version), tenantA, store.ErrConflict, put(keyset("data", version)))
	}
	f.update(tenantA, put(keyset("data", 1)))
	f.update(tenantA, put(keyset("prf", 1)))
	for _, version := range []int64{-1, 0, 1, 3} {
		f.refused(fmt.Sprintf("PutKeyset with version %d over 1", version), tenantA, store.ErrConflict, put(keyset("data", version)))
	}
	second := keyset("data", 2)
	second.KEK = "kek 2"
	f.update(tenantA, put(second))
	f.update(tenantA, put(keyset("data", 3)))
	f.same("keysets", f.contents(tenantA).Keysets, []store.Keyset{keyset("data", 3), keyset("prf", 1)})
}

func keysetDestruction(f *fixture) {
	f.fill(tenantA)
	f.fill(tenantB)
	want := f.contents(tenantA)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DestroyKeysets(ctx) })
	want.Keysets = nil
	f.same("contents without keysets", f.contents(tenantA), want)
	f.same("keysets of the other tenant", len(f.contents(tenantB).Keysets), 1)
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.DestroyKeysets(ctx) }) // nothing left to do
	f.refused("PutKeyset of the version after a destroyed one", tenantA, store.ErrConflict, func(ctx context.Context, tx store.Tx) error {
		return tx.PutKeyset(ctx, keyset("data", 2))
	})
	f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.PutKeyset(ctx, keyset("data", 1)) })
}

func marks(f *fixture) {
	put := func(name string, value []byte) {
		f.update(tenantA, func(ctx context.Context, tx store.Tx) error { return tx.PutMark(ctx, name, value) })
	}
	get := func(name string) (value string, err error) {
		f.view(tenantA, func(ctx context.Context, tx store.Tx) error {
			b, e := tx.Mark(ctx, name)
			value, err = string(b), e
			return nil
		})
		return value, err
	}
	put("a", []byte("1"))
	put("b", []byte("2"))
	put("a", []byte("3"))
	for name, want := range map[string]string{"a": "3", "b": "2"} {
		if got, err := get(name); got != want || err != nil {
			f.Errorf("Mark(%s): got %q, error %v; want %q", name, got, err, want)
		}
	}
	put("a", nil)
	put("never there", nil)
	for _, name := range []string{"a", "never there", "A", ""} {
		if _, err := get(name); !errors.Is(err, store.ErrNotFound) {
			f.Errorf("Mark(%q): got error %v, want %v", name, err, store.ErrNotFound)
		}
	}
	put("a", []byte("4"))
	if got, err := get("a"); got != "4" || err != nil {
		f.Errorf("Mark after it was removed and put again: got %q, error %v", got, err)
	}
}
