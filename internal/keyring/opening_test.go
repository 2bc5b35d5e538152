package keyring_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tokenkeep/tokenkeep/internal/keyring"
	"github.com/tokenkeep/tokenkeep/internal/store"
)

func TestOpenAllOpensRowsOfEveryKindAndCountsWhatDoesNot(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	one, two := w.tenant(), w.tenant()
	w.fill(one, 60, 5) // 120 values of tokens, 3 of applications
	furniture := w.furnish(two, 30)
	want := keyring.Opened{Tenants: 2, Values: int64(123 + furniture)}
	pages := 0
	if got, err := w.ring.OpenAll(ctx, func(keyring.Opened) { pages++ }); err != nil || got != want || pages < 10 {
		t.Errorf("OpenAll = %+v, %v after %d pages, want %+v", got, err, pages, want)
	}

	// One value of each tenant is another one's.
	w.update(one, func(tx store.Tx) error {
		token, err := tx.Token(ctx, "token-000")
		token.Version++
		token.Data = mustSeal(t, w.keys(two), "token-000", keyring.FieldTokenData, "of another tenant")
		return errors.Join(err, tx.ReplaceToken(ctx, token))
	})
	w.update(two, func(tx store.Tx) error {
		s, err := tx.Session(ctx, "session-000")
		s.Version++
		s.Grant = mustSeal(t, w.keys(two), "session-001", keyring.FieldSessionGrant, "of another session")
		return errors.Join(err, tx.ReplaceSession(ctx, s))
	})
	// The first is named by its place: which tenant comes first is chance.
	first := func(got *keyring.Opened) (named bool) {
		u := got.First
		got.First = nil
		return u != nil && !u.MadeAt.IsZero() &&
			(u.Tenant == one && u.Rows == "tokens" && u.Field == keyring.FieldTokenData || u.Tenant == two && u.Rows == "sessions" && u.Field == keyring.FieldSessionGrant)
	}
	want.Failed = 2
	if got, err := w.ring.OpenAll(ctx, nil); err != nil || !first(&got) || got != want {
		t.Errorf("with two values in the wrong place OpenAll = %+v, %v, want %+v", got, err, want)
	}

	w.blankTenant(func(store.Keyset) bool { return false }) // nobody asked for its deletion
	want.Failed = 3
	if got, err := w.ring.OpenAll(ctx, nil); err != nil || !first(&got) || got != want {
		t.Errorf("with a tenant without keys OpenAll = %+v, %v, want %+v", got, err, want)
	}
}

func TestOpenAllPassesOverATenantThatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	gone := w.tenant()
	w.fill(gone, 3, 0)
	w.update(gone, func(tx store.Tx) error {
		row, err := tx.TenantRow(ctx)
		row.Deleting = true
		return errors.Join(err, tx.ReplaceTenant(ctx, row), tx.DestroyKeysets(ctx))
	})
	w.ring.Forget(gone)
	if got, err := w.ring.OpenAll(ctx, nil); err != nil || got != (keyring.Opened{Deleting: 1}) {
		t.Errorf("OpenAll = %+v, %v, want one that is being deleted", got, err)
	}
}

func TestOpenAllNoticesKeysetsOfAnotherKEK(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant()
	set := w.keysets(tenant)[0]
	set.KEK, set.Version = "local-00000000", set.Version+1
	w.update(tenant, func(tx store.Tx) error { return tx.PutKeyset(t.Context(), set) })
	w.ring.Forget(tenant)
	if got, err := w.ring.OpenAll(t.Context(), nil); !errors.Is(err, keyring.ErrWrongKEK) {
		t.Errorf("OpenAll = %+v, %v, want ErrWrongKEK", got, err)
	}
}

func TestOpenAllReportsWhatItCouldNotRead(t *testing.T) {
	w := newWorld(t)
	w.tenant()
	for _, call := range []string{"Tenants", "Keysets", "Tokens", "TenantRow"} {
		failed := errors.New("no " + call)
		w.ring = w.open(keyring.Options{}) // which has nothing in memory
		w.watch().from(failOn(call, failed))
		_, err := w.ring.OpenAll(t.Context(), nil)
		w.watch().from(nil)
		if !errors.Is(err, failed) {
			t.Errorf("OpenAll without %s = %v", call, err)
		}
	}
}

func TestWhatDoesNotOpenIsNamedByItsPlace(t *testing.T) {
	u := keyring.Unopened{Tenant: "b7f1d3a0-aaaa-4aaa-8aaa-aaaaaaaaaaaa", Rows: "tokens", MadeAt: time.Date(2031, 5, 6, 7, 8, 9, 1000, time.UTC), Field: keyring.FieldTokenData}
	const want = "token.data in the row of tokens of tenant b7f1d3a0-aaaa-4aaa-8aaa-aaaaaaaaaaaa that was made at 2031-05-06T07:08:09.000001Z"
	if got := u.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
